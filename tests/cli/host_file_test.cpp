// host_file_test.cpp: which texts are a list of a gateway's hosts, and what a gateway does while its file
// changes, breaks and comes back.
#include "cli/host_file.hpp"
#include "nvmf/auth/random.hpp"

#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>

namespace gnstor::cli {
namespace {

namespace fs = std::filesystem;
using nvmf::HostList;
using nvmf::auth::KeyTransform;

constexpr char kA[] = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";
constexpr char kB[] = "nqn.2026-11.com.example:b";
/// 32 bytes, 0 to 31, as nvme gen-dhchap-key --secret prints them.
constexpr char kKey[] = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";

ListedHost host(const std::string& nqn) {
    return {nqn, {nvmf::auth::make_key().value(), nvmf::auth::make_key(KeyTransform::kSha384).value()}};
}

std::string good_text() {
    return fmt::format(
        R"({{"version":1,"hosts":[{{"nqn":"{}","key":"{}"}},{{"nqn":"{}","key":"{}","controller_key":"{}"}}]}})",
        kA, kKey, kB, kKey, kKey);
}

std::string replaced(std::string text, std::string_view what, std::string_view by) {
    text.replace(text.find(what), what.size(), by);
    return text;
}

/// All but the hash that transforms it, which no checksum covers.
std::string secret_of(std::string_view key) {
    return std::string(key.substr(10));
}
std::string secret_of(const nvmf::auth::DhchapKey& key) {
    return secret_of(key_text(key));
}

class HostFile : public ::testing::Test {
  protected:
    HostFile() {
        std::string name = (fs::temp_directory_path() / "gnstor-hosts-XXXXXX").string();
        folder = ::mkdtemp(name.data());
        file = folder / kHostsFile;
    }
    ~HostFile() override { fs::remove_all(folder); }
    void write(const std::string& text, mode_t mode = 0600) const {
        std::ofstream(file) << text;
        ::chmod(file.c_str(), mode);
    }
    [[nodiscard]] std::string text() const {
        std::ifstream in(file);
        return {std::istreambuf_iterator<char>(in), {}};
    }
    Result<void> add(const std::string& nqn) const {
        return change_hosts(file, [&](std::vector<ListedHost>& hosts) -> Result<void> {
            hosts.push_back(host(nqn));
            return {};
        });
    }
    fs::path folder, file;
};

TEST(HostsText, WhatIsWrittenIsReadBack) {
    std::vector<ListedHost> hosts;
    hosts.push_back(host(kA));
    hosts.push_back(host(kB));
    hosts.back().keys.controller.reset();
    const auto back = parse_hosts(format_hosts(hosts));
    ASSERT_TRUE(back.ok()) << back.error().message;
    ASSERT_EQ(back->size(), 2u);
    for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ((*back)[i].nqn, hosts[i].nqn);
        EXPECT_EQ(key_text((*back)[i].keys.host), key_text(hosts[i].keys.host));
    }
    EXPECT_EQ(key_text(*(*back)[0].keys.controller), key_text(*hosts[0].keys.controller));
    EXPECT_FALSE((*back)[1].keys.controller);
    EXPECT_EQ(format_hosts(*back), format_hosts(hosts));
    EXPECT_EQ(parse_hosts(format_hosts({}))->size(), 0u);
}

TEST(HostsText, EveryMalformedShapeIsRefusedWithoutItsKeys) {
    const std::string good = good_text();
    ASSERT_TRUE(parse_hosts(good).ok());
    const std::string shorter = std::string(kKey).substr(0, sizeof kKey - 2), secret = "AAECAwQFBgc";
    const std::vector<std::string> bad{
        "",
        " ",
        "null",
        "[]",
        "{}",
        "1",
        "\"x\"",
        good + "x",
        good + good,
        "\xEF\xBB\xBF" + good + "}",
        R"({"hosts":[]})",
        R"({"version":1})",
        R"({"version":2,"hosts":[]})",
        R"({"version":0,"hosts":[]})",
        R"({"version":"1","hosts":[]})",
        R"({"version":1.0,"hosts":[]})",
        R"({"version":true,"hosts":[]})",
        R"({"version":1,"hosts":{}})",
        R"({"version":1,"hosts":null})",
        R"({"version":1,"hosts":[1]})",
        R"({"version":1,"hosts":[[]]})",
        R"({"version":1,"hosts":[{}]})",
        R"({"version":1,"hosts":[],"x":1})",
        R"({"version":1,"version":1,"hosts":[]})",
        R"({"version":1,"hosts":[],"hosts":[]})",
        std::string(20'000, '['),
        std::string(20'000, '{'),
        replaced(good, "\"nqn\"", "\"NQN\""),
        replaced(good, "\"key\"", "\"keys\""),
        replaced(good, "\"controller_key\"", "\"controler_key\""),
        replaced(good, kA, kB),
        replaced(good, kA, ""),
        replaced(good, kA, kKey),
        replaced(good, kA, "nqn.2026-11.a\\u0000b"),
        replaced(good, kA, "nqn.2026-11.a\\nb"),
        replaced(good, kA, "nqn.2026-11.a b"),
        replaced(good, kA, "nqn.2026-11." + std::string(220, 'a')),
        replaced(good, fmt::format("\"{}\"", kA), "7"),
        replaced(good, fmt::format("\"{}\"", kKey), "null"),
        replaced(good, fmt::format("\"{}\"", kKey), fmt::format("[\"{}\"]", kKey)),
        replaced(good, kKey, ""),
        replaced(good, kKey, shorter),
        replaced(good, kKey, replaced(kKey, "AAEC", "AAED")),
        replaced(good, kKey, replaced(kKey, ":01:", ":03:")),
        replaced(good, kKey, std::string(kKey) + " "),
        replaced(good, "\"key\"", fmt::format("\"key\":\"{}\",\"key\"", kKey)),
        replaced(good, "{\"nqn\"", "{\"allow\":true,\"nqn\"")};
    for (const std::string& text : bad) {
        const auto read = parse_hosts(text);
        ASSERT_FALSE(read.ok()) << text.substr(0, 300);
        EXPECT_EQ(read.error().code, Errc::kCorrupt);
        EXPECT_EQ(read.error().message.find(secret), std::string::npos) << read.error().message;
    }
}

TEST(HostsText, ATextThatIsCutOffIsRefusedWhereverItEnds) {
    const std::string good = good_text();
    for (std::size_t bytes = 0; bytes < good.size(); ++bytes)
        EXPECT_FALSE(parse_hosts(good.substr(0, bytes)).ok()) << bytes;
}

TEST(HostsText, AChangedByteNeverMakesAnotherKey) {
    const std::string good = good_text();
    for (std::size_t at = 0; at < good.size(); ++at) {
        for (const char by : {'0', 'A', 'z', '"', '\\', '{', ',', '\0', '\x7F', '\xFF'}) {
            std::string text = good;
            text[at] = by;
            const auto read = parse_hosts(text);
            if (!read.ok()) continue;
            for (const ListedHost& one : *read) {
                EXPECT_EQ(secret_of(one.keys.host), secret_of(kKey)) << text;
                if (one.keys.controller) {
                    EXPECT_EQ(secret_of(*one.keys.controller), secret_of(kKey)) << text;
                }
            }
        }
    }
}

TEST_F(HostFile, IsPrivateAndReplacedAsAWhole) {
    ASSERT_TRUE(add(kA).ok());
    ASSERT_TRUE(add(kB).ok());
    EXPECT_EQ(read_hosts(file)->size(), 2u);
    struct stat about {};
    ASSERT_EQ(::stat(file.c_str(), &about), 0);
    EXPECT_EQ(about.st_mode & 07777u, 0600u);
    const std::string before = text();
    const auto refused = change_hosts(file, [](std::vector<ListedHost>& hosts) -> Result<void> {
        hosts.clear();
        return error(Errc::kExists, "no");
    });
    EXPECT_FALSE(refused.ok());
    EXPECT_FALSE(add(kA).ok()) << "listed twice";
    EXPECT_EQ(text(), before);
    std::size_t files = 0;
    for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder)) ++files;
    EXPECT_EQ(files, 2u) << "the file and its lock";
}

TEST_F(HostFile, ThatIsMalformedIsNotOverwritten) {
    write("{\"version\":");
    EXPECT_EQ(add(kA).error().code, Errc::kCorrupt);
    EXPECT_EQ(text(), "{\"version\":");
}

TEST_F(HostFile, KeepsEveryHostOfManyProgramsThatAddAtOnce) {
    constexpr int kThreads = 4, kEach = 5;
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
        threads.emplace_back([this, t] {
            for (int i = 0; i < kEach; ++i)
                EXPECT_TRUE(add(fmt::format("nqn.2026-11.com.example:{}-{}", t, i)).ok());
        });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(read_hosts(file)->size(), std::size_t{kThreads * kEach});
}

TEST_F(HostFile, ThatIsTooLongIsRefusedBeforeItIsWritten) {
    const auto done = change_hosts(file, [](std::vector<ListedHost>& hosts) -> Result<void> {
        for (int i = 0; i < 400; ++i) hosts.push_back(host(fmt::format("nqn.2026-11.com.example:{}", i)));
        return {};
    });
    ASSERT_FALSE(done.ok());
    EXPECT_EQ(done.error().code, Errc::kNoSpace);
    EXPECT_FALSE(fs::exists(file));
}

TEST_F(HostFile, AGatewayDoesNotStartWithABadList) {
    const auto start = [&] { return HostFileWatch::start(file, std::make_shared<HostList>()); };
    write("{");
    EXPECT_EQ(start().error().code, Errc::kCorrupt);
    write(good_text(), 0640);
    EXPECT_EQ(start().error().code, Errc::kPermission);
    fs::remove(file);
    fs::create_directory(file);
    EXPECT_FALSE(start().ok());
    fs::remove(file);
    EXPECT_TRUE(start().ok()) << "no file lists nobody";
}

TEST_F(HostFile, AGatewayKeepsTheLastGoodListWhileTheFileIsBad) {
    const auto list = std::make_shared<HostList>();
    auto watch = HostFileWatch::start(file, list).value();
    EXPECT_EQ(list->size(), 0u);
    EXPECT_EQ(watch->trouble(), "");
    ASSERT_TRUE(add(kA).ok());
    watch->look();
    ASSERT_EQ(list->size(), 1u);
    const std::uint64_t version = list->version();
    const std::string good = text();
    const auto bad = [&](const char* what) {
        watch->look();
        EXPECT_NE(watch->trouble(), "") << what;
        EXPECT_EQ(list->version(), version) << what;
        EXPECT_TRUE(list->find(kA)) << what;
        EXPECT_EQ(watch->trouble().find("DHHC"), std::string::npos) << what;
    };
    write(good.substr(0, good.size() / 2));
    bad("half written");
    write("");
    bad("empty");
    write(good_text(), 0604);
    bad("others may read it");
    fs::remove(file);
    bad("it is gone");
    fs::create_directory(file);
    bad("a folder of its name");
    fs::remove(file);
    write(good);
    watch->look();
    EXPECT_EQ(watch->trouble(), "");
    EXPECT_EQ(list->version(), version) << "nobody is disconnected by a file that came back";
}

TEST_F(HostFile, AGatewayTakesAChangeByItself) {
    const auto list = std::make_shared<HostList>();
    const auto watch = HostFileWatch::start(file, list).value();
    const auto eventually = [&](std::size_t hosts) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
        while (list->size() != hosts && std::chrono::steady_clock::now() < end) std::this_thread::yield();
        EXPECT_EQ(list->size(), hosts);
    };
    ASSERT_TRUE(add(kA).ok());
    eventually(1);
    ASSERT_TRUE(add(kB).ok());
    eventually(2);
    ASSERT_TRUE(change_hosts(file, [](std::vector<ListedHost>& hosts) -> Result<void> {
                    hosts.clear();
                    return {};
                }).ok());
    eventually(0);
}

}  // namespace
}  // namespace gnstor::cli
