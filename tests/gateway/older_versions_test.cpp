// older_versions_test.cpp: a block whose newest version is doubtful on every replica, as programs and hosts
// meet it: what stands there is older data, and nobody gets that without being told.
#include "gateway/rig.hpp"
#include "support/file_bytes.hpp"

#include <gnstor/base/crc32c.hpp>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <span>

namespace gnstor::test::older_versions_test {

namespace fs = std::filesystem;

constexpr std::uint32_t kBlocks = 64, kDoubtful = 5, kOther = 6;
constexpr std::size_t kBootCopies[] = {4096, 6144};  // docs/store-format.md
constexpr std::size_t kDriveUuid = 16, kDriveUuidBytes = 16;
constexpr std::size_t kBootId = 32, kBootIdBytes = 16, kBootCrc = 2044;

std::vector<std::byte> pattern(std::uint32_t version) {
    std::vector<std::byte> block(kBlock);
    for (std::uint32_t i = 0; i < kBlock; ++i) block[i] = static_cast<std::byte>(mix64(version * kBlock + i));
    return block;
}

/// Two SSDs in files, as they lie there after a cut of power that tore the last write of one block on both.
class DoubtfulStores {
  public:
    DoubtfulStores() {
        options.directory = folder_ / "before";
        write_and_copy();
        options.directory = folder_ / "after";
        for (std::uint32_t slot = 0; slot < options.ssds; ++slot)
            tear(options.directory / fmt::format("ssd-{}.store", slot));
    }
    ~DoubtfulStores() { fs::remove_all(folder_); }
    static EmbeddedArrayOptions make_options() {
        EmbeddedArrayOptions o = gateway_array();
        o.ssds = 2;
        o.ssd_capacity_bytes = 64u << 20;
        o.durability = SsdDurability::kPower;
        return o;
    }
    EmbeddedArrayOptions options = make_options();

  private:
    void write_and_copy() {
        GatewayRig rig(options);
        const auto client = rig.client("owner");
        rig.make_volume(*client, "v", kBlocks);
        const auto volume = client->open("v", client::OpenMode::kWrite).value();
        GN_ASSERT_OK(volume->write(kDoubtful, pattern(1)));
        GN_ASSERT_OK(volume->write(kOther, pattern(2)));
        GN_ASSERT_OK(volume->write(kDoubtful, pattern(3)));
        GN_ASSERT_OK(volume->release());
        fs::copy(folder_ / "before", folder_ / "after", fs::copy_options::recursive);
    }
    /// One byte of the newest version, and the boot that the store was open in.
    static void tear(const fs::path& path) {
        std::string bytes = file_bytes(path);
        const auto newest = pattern(3);
        const std::size_t at = bytes.find(reinterpret_cast<const char*>(newest.data()), 0, kBlock);
        ASSERT_NE(at, std::string::npos);
        bytes[at + 1234] = static_cast<char>(bytes[at + 1234] ^ 1);
        for (const std::size_t copy : kBootCopies) {
            std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(copy + kBootId), kBootIdBytes, '\0');
            const std::uint32_t of_drive = crc32c(bytes.data() + kDriveUuid, kDriveUuidBytes);
            const std::uint32_t crc = crc32c(bytes.data() + copy, kBootCrc, of_drive);
            std::memcpy(bytes.data() + copy + kBootCrc, &crc, sizeof(crc));
        }
        std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    }
    const fs::path folder_ = [] {
        const fs::path made = fs::temp_directory_path() / fmt::format("gn-older-{}", ::getpid());
        fs::remove_all(made);
        fs::create_directories(made / "before");
        return made;
    }();
};

/// Both SSDs are in doubt, and nothing else is the matter with them.
bool in_doubt(const GatewayRig& rig) {
    bool all = true;
    for (std::uint32_t i = 0; i < rig.array.options.ssds; ++i)
        all = all && rig.array.node->drive(i).counters().doubtful == 1;
    return all;
}

/// An array on such stores. A machine that halts for a second while they are made lets the SSDs close their
/// groups: then the version that is torn here was certain, and they are made again.
struct DoubtfulArray {
    DoubtfulArray() {
        for (int i = 0; i < 10; ++i) {
            rig.reset();
            stores.emplace();
            rig = std::make_unique<GatewayRig>(stores->options);
            if (in_doubt(*rig)) return;
        }
        ADD_FAILURE() << "no SSD reports a doubtful block";
    }
    std::optional<DoubtfulStores> stores;
    std::unique_ptr<GatewayRig> rig;
};

TEST(OlderVersions, AReaderOfAnOlderVersionIsToldSoAndMayAcceptIt) {
    DoubtfulArray array;
    const auto client = array.rig->client("reader");
    const auto volume = client->open("v", client::OpenMode::kRead).value();
    std::vector<std::byte> got(kBlocks * kBlock, std::byte{0xEE});
    const auto plain = volume->read(0, got);
    ASSERT_FALSE(plain.ok());
    EXPECT_NE(plain.error().message.find("older version"), std::string::npos) << plain.error().message;
    const auto older = volume->read_older_too(0, got);
    GN_ASSERT_OK(older);
    EXPECT_EQ(*older, 1u);
    EXPECT_TRUE(std::ranges::equal(std::span(got).subspan(kDoubtful * kBlock, kBlock), pattern(1)));
    EXPECT_TRUE(std::ranges::equal(std::span(got).subspan(kOther * kBlock, kBlock), pattern(2)));
    const auto none = volume->read_older_too(kOther, std::span(got).first(kBlock));
    GN_ASSERT_OK(none);
    EXPECT_EQ(*none, 0u);
}

TEST(OlderVersions, AHostGetsAMediaErrorUnlessOlderDataIsAllowedAndAWriteRepairsTheBlock) {
    DoubtfulArray array;
    const auto client = array.rig->client("gw");
    gateway::GatewayOptions o;
    o.volume = "v";
    for (const bool serves_older : {false, true}) {
        o.serves_older = serves_older;
        const auto served = array.rig->serve(*client, o).value();
        BlockHost host(*array.rig, *served, 1);
        const auto data = std::span(host.buffer.data(), kBlock);
        EXPECT_EQ(host.status(block_command(IoOpcode::kRead, kDoubtful, 1), kBlock),
                  serves_older ? Status::kSuccess : Status::kUnrecoveredReadError);
        if (serves_older) {
            EXPECT_TRUE(std::ranges::equal(data, pattern(1)));
        }
        EXPECT_EQ(served->gateway(0).counters().older_reads, 1u);
        EXPECT_EQ(host.status(block_command(IoOpcode::kRead, kOther, 1), kBlock), Status::kSuccess);
        EXPECT_TRUE(std::ranges::equal(data, pattern(2)));
        if (!serves_older) continue;
        std::ranges::copy(pattern(4), data.begin());
        EXPECT_EQ(host.status(block_command(IoOpcode::kWrite, kDoubtful, 1), kBlock), Status::kSuccess);
        std::ranges::fill(data, std::byte{0});
        EXPECT_EQ(host.status(block_command(IoOpcode::kRead, kDoubtful, 1), kBlock), Status::kSuccess);
        EXPECT_TRUE(std::ranges::equal(data, pattern(4)));
        EXPECT_EQ(served->gateway(0).counters().older_reads, 1u);
    }
}

}  // namespace gnstor::test::older_versions_test
