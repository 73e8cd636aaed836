// loopback_listener_test.cpp: to whom a client would send its token over plain HTTP on this machine.
#include "daemon/http/loopback_listener.hpp"
#include "daemon/http/ip_address.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

namespace gnstor::daemon {
namespace {

constexpr char kTable[] =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    "   0: 0100007F:2116 00000000:0000 0A 00000000:00000000 00:00000000 00000000 65534        0 1 1 0 100 0\n"
    "   1: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 2 1 0 100 0\n"
    "   2: 0100007F:2116 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     7        0 3 1 0 100 0\n"
    "   4: 00000000000000000000000001000000:0050 00000000000000000000000000000000:0000 0A 0:0 0:0 0 7 0 4 1 "
    "0\n"
    "broken\n   3: 0100007F:XXXX 0:0 0A 0:0 0:0 0 5 0 4\n";

in6_addr address(const std::string& text) {
    in6_addr out{};
    EXPECT_EQ(::inet_pton(AF_INET6, text.c_str(), &out), 1) << text;
    return out;
}

using Users = std::set<std::uint32_t>;

TEST(LoopbackListener, IsReadFromTheKernelsTable) {
    EXPECT_EQ(users_listening(kTable, address("::ffff:127.0.0.1"), 0x2116), Users{65534});
    EXPECT_EQ(users_listening(kTable, address("::ffff:127.0.0.1"), 0x1F90), Users{1000})
        << "0.0.0.0 takes connections to every address";
    EXPECT_EQ(users_listening(kTable, address("::ffff:0.0.0.0"), 0x2116), Users{65534})
        << "a connection to 0.0.0.0 goes to the loopback address";
    EXPECT_EQ(users_listening(kTable, address("::1"), 0x0050), Users{7}) << "from tcp6";
    EXPECT_TRUE(users_listening(kTable, address("::2"), 0x0050).empty());
    EXPECT_TRUE(users_listening(kTable, address("::ffff:127.0.0.1"), 81).empty());
    EXPECT_TRUE(users_listening("", address("::1"), 80).empty());
}

TEST(LoopbackListener, OnAnotherAddressOfTheSamePortIsNotTheOneThatIsMeant) {
    EXPECT_TRUE(users_listening(kTable, address("::ffff:127.9.9.9"), 0x2116).empty());
}

/// A socket of this user that listens on a port of 127.0.0.1, or that bound it alone.
class OwnSocket {
  public:
    explicit OwnSocket(const char* at) {
        sockaddr_in any{};
        any.sin_family = AF_INET;
        ::inet_pton(AF_INET, at, &any.sin_addr);
        socklen_t size = sizeof any;
        good_ = ::bind(fd_, reinterpret_cast<sockaddr*>(&any), size) == 0 && ::listen(fd_, 1) == 0 &&
                ::getsockname(fd_, reinterpret_cast<sockaddr*>(&any), &size) == 0;
        port_ = ntohs(any.sin_port);
    }
    ~OwnSocket() { ::close(fd_); }
    [[nodiscard]] bool good() const { return good_; }
    [[nodiscard]] std::uint16_t port() const { return port_; }

  private:
    const int fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
    bool good_ = false;
    std::uint16_t port_ = 0;
};

TEST(LoopbackListener, OfTheSameUserIsConnectedToAtTheAddressThatWasChecked) {
    const OwnSocket own("127.0.0.1");
    ASSERT_TRUE(own.good());
    for (const char* host : {"127.0.0.1", "localhost", "127.1", "::ffff:127.0.0.1"})
        EXPECT_EQ(trusted_listener(host, own.port()).value(), "127.0.0.1") << host;
    EXPECT_EQ(trusted_listener("192.0.2.1", own.port()).value(), "") << "another machine";
}

TEST(LoopbackListener, WhereNothingListensYetGetsNoToken) {
    std::uint16_t port = 0;
    {
        const OwnSocket own("127.0.0.1");
        port = own.port();
    }
    EXPECT_EQ(trusted_listener("127.0.0.1", port).error().code, Errc::kIo);
    EXPECT_EQ(trusted_listener("127.200.0.1", port).error().code, Errc::kIo);
}

TEST(LoopbackListener, OnAnAddressOfThisMachinesInterfacesIsFoundToo) {
    ifaddrs* list = nullptr;
    ASSERT_EQ(::getifaddrs(&list), 0);
    std::string mine;
    for (const ifaddrs* own = list; own != nullptr; own = own->ifa_next) {
        if (own->ifa_addr == nullptr || own->ifa_addr->sa_family != AF_INET) continue;
        if (is_loopback_address(own->ifa_addr)) continue;
        char text[INET_ADDRSTRLEN] = "";
        sockaddr_in v4{};
        std::memcpy(&v4, own->ifa_addr, sizeof v4);
        mine = ::inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    }
    ::freeifaddrs(list);
    if (mine.empty()) GTEST_SKIP() << "this machine has no address but the loopback one";
    const OwnSocket own(mine.c_str());
    ASSERT_TRUE(own.good()) << mine;
    EXPECT_EQ(trusted_listener(mine, own.port()).value(), mine);
    EXPECT_FALSE(trusted_listener(mine, 1).ok()) << "this machine, and nothing listens there";
}

TEST(LoopbackListener, OfAnotherUserGetsNoToken) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to listen as another user";
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t thief = ::fork();
    if (thief == 0) {
        const bool other = ::setuid(65534) == 0;
        const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
        sockaddr_in any{};
        any.sin_family = AF_INET;
        any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof any;
        const bool good = other && ::bind(fd, reinterpret_cast<sockaddr*>(&any), size) == 0 &&
                          ::listen(fd, 1) == 0 &&
                          ::getsockname(fd, reinterpret_cast<sockaddr*>(&any), &size) == 0;
        const std::uint16_t port = good ? ntohs(any.sin_port) : 0;
        if (::write(ready[1], &port, sizeof port) == sizeof port) ::pause();
        ::_exit(0);
    }
    std::uint16_t port = 0;
    ASSERT_EQ(::read(ready[0], &port, sizeof port), static_cast<ssize_t>(sizeof port));
    ASSERT_NE(port, 0);
    for (const char* host : {"127.0.0.1", "localhost", "LocalHost", "127.1", "2130706433", "::ffff:127.0.0.1",
                             "0.0.0.0", "::"}) {
        const Result<std::string> checked = trusted_listener(host, port);
        EXPECT_TRUE(!checked.ok() && checked.error().code == Errc::kPermission) << host;
    }
    EXPECT_FALSE(trusted_listener("localhost.", port).ok())
        << "a name that some resolvers know and others do not: refused in either case";
    EXPECT_EQ(trusted_listener("no such host", port).error().code, Errc::kIo);
    ::kill(thief, SIGKILL);
    ::waitpid(thief, nullptr, 0);
    ::close(ready[0]);
    ::close(ready[1]);
}

}  // namespace
}  // namespace gnstor::daemon
