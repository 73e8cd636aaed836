// array_address_test.cpp: what people write for a gnstord is understood whole, or refused.
#include "daemon/http/array_address.hpp"
#include "daemon/http/etcd_client.hpp"

#include <gtest/gtest.h>

using namespace gnstor;
using namespace gnstor::daemon;

namespace {

TEST(ArrayAddress, NamesASocketOrAHostAndPort) {
    EXPECT_EQ(parse_array_address("unix:/run/gnstord.sock")->socket, "/run/gnstord.sock");
    const auto v4 = parse_array_address("http://10.0.0.1:8470");
    ASSERT_TRUE(v4.ok());
    EXPECT_TRUE(v4->socket.empty());
    EXPECT_EQ(v4->host, "10.0.0.1");
    EXPECT_EQ(v4->port, 8470);
    EXPECT_EQ(parse_array_address("http://storage-1.example:80/")->host, "storage-1.example");
    EXPECT_EQ(parse_array_address("http://[fd00::1]:8470")->host, "fd00::1");
    EXPECT_EQ(parse_host_port("127.0.0.1:0", true)->port, 0);
    EXPECT_FALSE(v4->tls);
    const auto tls = parse_array_address("https://[fd00::1]:8470/");
    ASSERT_TRUE(tls.ok());
    EXPECT_TRUE(tls->tls);
    EXPECT_EQ(tls->host, "fd00::1");
    EXPECT_EQ(tls->port, 8470);
}

TEST(ArrayAddress, SeveralDaemonsOfOneArrayHaveCommasBetweenThem) {
    const auto both = client_options("unix:/a/s,unix:/b/s", "");
    ASSERT_TRUE(both.ok()) << both.error().message;
    EXPECT_EQ(both->socket, "/a/s");
    ASSERT_EQ(both->others.size(), 1u);
    EXPECT_EQ(both->others[0].socket, "/b/s");
    EXPECT_EQ(parse_array_addresses("https://a:1,http://b:2")->size(), 2u);
    for (const char* wrong : {"", ",", "unix:/a,", "unix:/a,b", "http://a:1,,http://b:2"})
        EXPECT_FALSE(parse_array_addresses(wrong).ok()) << wrong;
}

TEST(ArrayAddress, EtcdIsNamedByUrlsAndFilesThatBelongTogether) {
    EXPECT_EQ(parse_etcd_servers("http://a:2379,http://[fd00::1]:2379")->endpoints.size(), 2u);
    EXPECT_TRUE(parse_etcd_servers("https://a:2379", "ca", "cert", "key").ok());
    for (const char* wrong : {"", "a:2379", "unix:/s", "http://a", "http://a:1,,"})
        EXPECT_EQ(parse_etcd_servers(wrong).error().code, Errc::kInvalidArgument) << wrong;
    EXPECT_FALSE(parse_etcd_servers("http://a:2379", "ca").ok()) << "a certificate that is not checked";
    EXPECT_FALSE(parse_etcd_servers("https://a:2379", "ca", "cert").ok());
}

TEST(ArrayAddress, AnythingElseIsRefusedWithTheAcceptedForms) {
    for (const char* bad : {"",
                            "unix:",
                            "http://",
                            "http://:80",
                            "http://h",
                            "http://h:",
                            "http://h:0",
                            "http://h:65536",
                            "http://h:-1",
                            "http://h:80x",
                            "http://h:80/path",
                            "http://u@h:80",
                            "https://h",
                            "https://h:0",
                            "HTTPS://h:80",
                            "h:80",
                            "http://[]:80",
                            "http://a b:80",
                            "http://fd00::1:80",
                            "http://h:80\n",
                            "http://h\r\nX: y:80",
                            "tcp:h:80",
                            "/run/sock"}) {
        const auto refused = parse_array_address(bad);
        ASSERT_FALSE(refused.ok()) << bad;
        EXPECT_EQ(refused.error().code, Errc::kInvalidArgument);
    }
    EXPECT_FALSE(parse_host_port("127.0.0.1:0", false).ok());
}

TEST(ArrayAddress, WhoNamesACertificateGetsNoConnectionWithoutOne) {
    const std::string pin = "SHA256:" + std::string(64, 'a');
    const auto options = [](std::string_view array, const TlsWords& words) {
        return client_options(array, "no/token", words).error();
    };
    for (const TlsWords& words : {TlsWords{"ca.pem", ""}, TlsWords{"", pin}}) {
        EXPECT_EQ(options("http://h:80", words).code, Errc::kInvalidArgument);
        EXPECT_NE(options("http://h:80", words).message.find("https://"), std::string::npos);
        EXPECT_TRUE(client_options("unix:/run/s", "", words).ok()) << "a Unix socket needs none";
        EXPECT_NE(options("https://h:80", words).message.find("--token-file"), std::string::npos);
    }
    EXPECT_EQ(options("https://h:80", {"ca.pem", pin}).code, Errc::kInvalidArgument);
    EXPECT_EQ(options("https://h:80", {"", "SHA256:12"}).code, Errc::kInvalidArgument);
}

}  // namespace
