// shm_hostile_test.cpp: one who may open a node's socket and means harm: descriptors of every kind, some of
// whose close never ends; connections by the thousand; memory that is taken away; queue pairs in error that
// want attention all the time. Beside a client that must not notice. (What is written over shared memory:
// shm_test.cpp and tests/embedded/hostile_shm_test.cpp.)
#include "rdma/nic/engine.hpp"
#include "rdma/shm_rig.hpp"

#include "support/count.hpp"

#include <gnstor/base/hash.hpp>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <deque>
#include <thread>

namespace gnstor::rdma::test {
namespace {

std::span<const std::byte> bytes_of(const shm::Request& request) {
    return std::as_bytes(std::span(&request, 1));
}

shm::Request share_request(std::uint64_t bytes) {
    shm::Request request;
    request.kind = shm::Kind::kShare;
    request.address = std::uint64_t{1} << 40;
    request.bytes = bytes;
    return request;
}

shm::Descriptor sealed(off_t bytes, int seals, unsigned flags = MFD_ALLOW_SEALING) {
    shm::Descriptor file(::memfd_create("gnstor-hostile", flags));
    EXPECT_EQ(::ftruncate(file.get(), bytes), 0);
    EXPECT_EQ(::fcntl(file.get(), F_ADD_SEALS, seals), 0);
    return file;
}

TEST(ShmHostile, OnlyMemoryThatCannotBeTakenAwayIsMappedWhateverDescriptorComes) {
    Node node;
    Client honest(node.path);
    std::vector<std::pair<const char*, shm::Descriptor>> kinds;
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    kinds.emplace_back("a pipe", shm::Descriptor(ends[0]));
    kinds.emplace_back("its other end", shm::Descriptor(ends[1]));
    const auto fifo = node.path.string() + "-fifo";
    ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
    kinds.emplace_back("a FIFO", shm::Descriptor(::open(fifo.c_str(), O_RDWR | O_CLOEXEC)));
    ::unlink(fifo.c_str());
    kinds.emplace_back("a directory", shm::Descriptor(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
    kinds.emplace_back("an O_PATH", shm::Descriptor(::open("/", O_PATH | O_CLOEXEC)));
    kinds.emplace_back("/dev/zero", shm::Descriptor(::open("/dev/zero", O_RDWR | O_CLOEXEC)));
    kinds.emplace_back("/dev/null", shm::Descriptor(::open("/dev/null", O_RDWR | O_CLOEXEC)));
    const auto path = node.path.string() + "-file";
    kinds.emplace_back("a file", shm::Descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)));
    ASSERT_EQ(::ftruncate(kinds.back().second.get(), 1 << 20), 0);
    ::unlink(path.c_str());
    kinds.emplace_back("an eventfd", shm::Descriptor(::eventfd(1, EFD_CLOEXEC)));
    kinds.emplace_back("an epoll", shm::Descriptor(::epoll_create1(EPOLL_CLOEXEC)));
    kinds.emplace_back("a socket", shm::Descriptor(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)));
    kinds.emplace_back("memory that can shrink", sealed(1 << 20, F_SEAL_GROW));
    kinds.emplace_back("memory that cannot be written", sealed(1 << 20, F_SEAL_SHRINK | F_SEAL_WRITE));
    kinds.emplace_back("memory that is too short", sealed(4096, F_SEAL_SHRINK));
    const shm::Descriptor whole = sealed(1 << 20, F_SEAL_SHRINK);
    kinds.emplace_back("memory that was opened to read",
                       shm::Descriptor(::open(("/proc/self/fd/" + std::to_string(whole.get())).c_str(),
                                              O_RDONLY | O_CLOEXEC)));
    const auto socket = must(shm::Socket::connect(node.path.string()));
    shm::Answer answer;
    for (const auto& [what, file] : kinds) {
        ASSERT_GE(file.get(), 0) << what;
        must(socket.send(bytes_of(share_request(1 << 20)), file.get()));
        must(socket.receive(std::as_writable_bytes(std::span(&answer, 1)), 10'000));
        EXPECT_GE(answer.failure, 0) << what;
    }
    // More than all memory: sparse, so it costs its owner nothing.
    const shm::Descriptor huge = sealed(std::numeric_limits<off_t>::max() & ~off_t{4095}, F_SEAL_SHRINK);
    for (const std::uint64_t bytes : {std::uint64_t{1} << 62, std::uint64_t{1} << 46, ~std::uint64_t{4095}}) {
        must(socket.send(bytes_of(share_request(bytes)), huge.get()));
        must(socket.receive(std::as_writable_bytes(std::span(&answer, 1)), 10'000));
        EXPECT_GE(answer.failure, 0) << bytes;
    }
    must(socket.send(bytes_of(share_request(1 << 20)), whole.get()));
    must(socket.receive(std::as_writable_bytes(std::span(&answer, 1)), 10'000));
    EXPECT_EQ(answer.failure, -1) << "which shows that the others were refused for what they are";
    EXPECT_TRUE(honest.echo(1));
    gnstor::test::count("shm_hostile_descriptors", kinds.size());
}

TEST(ShmHostile, SharedMemoryThatIsShrunkOrPunchedOutDoesNotEndTheNode) {
    Node node;
    Client honest(node.path);
    for (std::uint64_t round = 0; round < 20; ++round) {
        Client client(node.path);
        ASSERT_TRUE(client.echo(round));
        std::uint32_t files = 0;
        for (const auto& one : std::filesystem::directory_iterator("/proc/self/fd")) {
            std::error_code gone;
            const auto what = std::filesystem::read_symlink(one.path(), gone).string();
            if (what.find("memfd:gnstor") == std::string::npos) continue;
            const int fd = std::stoi(one.path().filename());
            EXPECT_EQ(::ftruncate(fd, 0), -1) << "the seal that the node asks for forbids it";
            ++files;
        }
        EXPECT_GT(files, 0u);
        // All pages of the client: as a punched hole leaves them, and without their backing until touched.
        ASSERT_EQ(::madvise(client.end.send_ring, 4096, MADV_REMOVE), 0);
        ASSERT_EQ(::madvise(client.cq.ring, 4096, MADV_REMOVE), 0);
        for (std::uint64_t bell = 1; bell < 50; ++bell)
            __atomic_store_n(client.end.words, bell, __ATOMIC_RELAXED);
        EXPECT_TRUE(honest.echo(100 + round));
    }
    EXPECT_TRUE(honest.echo(7));
}

/// A TCP connection with bytes that are never taken, whose last close waits for that (SO_LINGER), for as long
/// as `stop()` is not called.
class Lingering {
  public:
    Lingering() {
        const shm::Descriptor listening(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_in to{};
        to.sin_family = AF_INET;
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t bytes = sizeof to;
        auto* const address = reinterpret_cast<sockaddr*>(&to);
        EXPECT_EQ(::bind(listening.get(), address, bytes), 0);
        EXPECT_EQ(::listen(listening.get(), 1), 0);
        EXPECT_EQ(::getsockname(listening.get(), address, &bytes), 0);
        sender_ = shm::Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        EXPECT_EQ(::connect(sender_.get(), address, bytes), 0);
        receiver_ = shm::Descriptor(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
        const linger wait{.l_onoff = 1, .l_linger = 600};
        EXPECT_EQ(::setsockopt(sender_.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof wait), 0);
        const std::vector<std::byte> much(1 << 16);
        while (::send(sender_.get(), much.data(), much.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
        }
    }
    ~Lingering() { stop(); }
    /// Sends it beside `bytes` and closes it. Where the node closes its own later, which is usual, the node's
    /// close waits; otherwise this thread's.
    void give(const shm::Socket& to, std::span<const std::byte> bytes) {
        giving_ = std::thread([this, &to, bytes] {
            (void)to.send(bytes, sender_.get());
            sender_ = shm::Descriptor();
        });
    }
    /// Ends all waiting.
    void stop() {
        receiver_ = shm::Descriptor();
        if (giving_.joinable()) giving_.join();
    }

  private:
    shm::Descriptor sender_, receiver_;
    std::thread giving_;
};

TEST(ShmHostile, ADescriptorWhoseCloseNeverEndsHoldsUpOnlyTheThreadOfItsSender) {
    Node node({.silent_max = 8, .hello_ms = 300});
    std::deque<Lingering> lingering;
    std::deque<shm::Socket> sockets;  // which the threads of those above use
    shm::Request garbage;
    garbage.magic = 0;
    const shm::Request hello;
    {
        Client honest(node.path);
        for (int i = 0; i < 12; ++i) {
            const std::span<const std::byte> firsts[] = {bytes_of(hello), bytes_of(garbage),
                                                         bytes_of(hello).first(1)};
            sockets.push_back(must(shm::Socket::connect(node.path.string())));
            lingering.emplace_back().give(sockets.back(), firsts[i % 3]);
            EXPECT_TRUE(honest.echo(1));
            Client newcomer(node.path);  // within kHelloMs, or it fails
            EXPECT_TRUE(newcomer.echo(2));
        }
        // More at once than may be silent: some are closed before anybody reads what they say.
        for (int i = 0; i < 24; ++i) {
            sockets.push_back(must(shm::Socket::connect(node.path.string())));
            if (i % 3 == 0) lingering.emplace_back().give(sockets.back(), bytes_of(garbage));
        }
        Client newcomer(node.path);
        EXPECT_TRUE(newcomer.echo(3));
        EXPECT_TRUE(honest.echo(4));
    }
    for (Lingering& one : lingering) one.stop();
    sockets.clear();
    EXPECT_TRUE(eventually([&] { return node.server->clients() == 0; }));
}

TEST(ShmHostile, ThousandsOfConnectionsThatSayHalfOrNothingLeaveOthersServed) {
    constexpr std::uint32_t kConnections = 3000, kKept = 40;
    Node node({.hello_ms = 500});
    Client honest(node.path);
    SplitMix64 dice(seed_from_environment(5));
    const shm::Descriptor file = sealed(4096, F_SEAL_SHRINK);
    std::deque<shm::Socket> kept;
    std::uint32_t made = 0;
    for (std::uint32_t i = 0; i < kConnections; ++i) {
        auto socket = shm::Socket::connect(node.path.string());
        if (!socket.ok()) continue;  // the backlog is full for a moment
        ++made;
        shm::Request request;
        const auto bytes = bytes_of(request);
        switch (dice.below(6)) {
            case 0:
                break;  // silence
            case 1:
                (void)socket->send(bytes.first(dice.below(bytes.size())), file.get());
                break;
            case 2:
                (void)socket->send(bytes, file.get());
                break;
            case 3:
                for (int more = 0; more < 8; ++more)
                    if (!socket->send(bytes, file.get()).ok()) break;
                break;
            case 4:
                request.magic = static_cast<std::uint32_t>(dice.next());
                (void)socket->send(bytes);
                break;
            default:
                socket->shut_down();
                break;
        }
        kept.push_back(std::move(*socket));
        if (kept.size() > kKept) kept.pop_front();
        if (i % 50 != 0) continue;
        ASSERT_TRUE(honest.echo(i));
    }
    EXPECT_GT(made, kConnections / 2);
    kept.clear();
    EXPECT_TRUE(eventually([&] {
        const auto newcomer = open_shm_nic(node.path);
        return newcomer.ok();
    }));
    EXPECT_TRUE(eventually([&] { return node.server->clients() == 1; }));
    EXPECT_TRUE(honest.echo(1));
    gnstor::test::count("shm_hostile_connections", made);
}

TEST(ShmHostile, QueuePairsInErrorShareTheFlushesOfOneRoundAndNoneOfThemTakesAll) {
    constexpr std::uint32_t kPairs = 64, kReceives = 1024;
    const auto reactor = must(Reactor::start("idle"));
    NicEngine engine(*reactor);
    NicContext context;
    std::vector<mlx5::Cqe64> ring(kPairs * kReceives);
    std::vector<mlx5::SendEntry> sends(1);
    std::vector<mlx5::DataSegment> receives(kReceives);
    std::uint32_t consumer = 0;
    std::uint64_t bell = 0;
    CompletionQueue cq({ring.data(), kPairs * kReceives, &consumer});
    std::vector<std::array<std::uint32_t, 2>> records(kPairs);
    std::vector<QueuePair> pairs(kPairs);
    for (std::uint32_t i = 0; i < kPairs; ++i) {
        pairs[i].nic = &context;
        pairs[i].qpn = i;
        pairs[i].config.send_ring = sends.data();
        pairs[i].config.send_entries = 1;
        pairs[i].config.receive_ring = receives.data();
        pairs[i].config.receive_entries = kReceives;
        pairs[i].config.doorbell_record = records[i].data();
        pairs[i].config.bell = &bell;
        pairs[i].send_cq = pairs[i].receive_cq = &cq;
        pairs[i].state = QpState::kError;
        engine.attach(pairs[i]);
    }
    const auto flushed = [&] {
        std::uint64_t all = 0;
        for (const QueuePair& qp : pairs) all += qp.receives_used;
        return all;
    };
    for (std::uint32_t round = 1; round <= 4 * kPairs; ++round) {
        // Whatever was flushed is posted again at once.
        for (std::uint32_t i = 0; i < kPairs; ++i)
            records[i][mlx5::kReceiveRecord] =
                be32(static_cast<std::uint32_t>(pairs[i].receives_used + kReceives) & mlx5::kIndexMask);
        consumer = be32(static_cast<std::uint32_t>(flushed()) & mlx5::kConsumerMask);
        (void)engine.poll();
        ASSERT_LE(flushed(), std::uint64_t{round} * NicEngine::kBatch) << "a round must stay short";
    }
    for (const QueuePair& qp : pairs) EXPECT_GT(qp.receives_used, 0u) << "queue pair " << qp.qpn;
    for (QueuePair& qp : pairs) engine.detach(qp);
    running_engine = nullptr;
}

}  // namespace
}  // namespace gnstor::rdma::test
