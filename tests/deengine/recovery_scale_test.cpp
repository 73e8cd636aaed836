// recovery_scale_test.cpp: how long a full drive of 16 GiB takes to recover, and with how much memory: said,
// not asserted. The flash keeps records and journal pages; data is always zeroes, which nothing here looks
// at.
#include <gtest/gtest.h>

#include "deengine/map/order.hpp"
#include "deengine/shard/shard.hpp"
#include "deengine/shard/shard_room.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <unordered_map>

namespace gnstor::deengine::test {
namespace {

/// Records of all pages in 32 bytes each, contents of system pages alone.
class HollowFlash : public Flash {
  public:
    explicit HollowFlash(FlashGeometry geometry)
        : geometry_(geometry), records_(geometry.pages()), next_(geometry.units) {
        static constexpr std::byte kZeroes[nvme::kSectorBytes] = {};
        zero_crc_ = crc32c(kZeroes, sizeof(kZeroes));
    }
    [[nodiscard]] FlashGeometry geometry() const override { return geometry_; }
    FlashStatus program(PageNumber page, const std::byte* data, PageOob& oob) override {
        const std::uint32_t unit = page / geometry_.pages_per_unit;
        if (page % geometry_.pages_per_unit != next_[unit]) return FlashStatus::kRefused;
        ++next_[unit];
        for (std::uint32_t& crc : oob.sector_crc) crc = zero_crc_;
        if (data != nullptr && oob.kind == PageKind::kSystem) {
            auto& copy = system_[page];
            std::memcpy(copy.data(), data, copy.size());
            for (std::uint32_t s = 0; s < nvme::kSectorsPerBlock; ++s)
                oob.sector_crc[s] = crc32c(data + std::size_t{s} * nvme::kSectorBytes, nvme::kSectorBytes);
        }
        oob.crc = crc32c(&oob, offsetof(PageOob, crc));
        records_[page] = {oob.sequence, oob.vba, oob.epoch, oob.unit_serial, oob.group, oob.vid, oob.kind};
        return FlashStatus::kOk;
    }
    FlashStatus read(PageNumber page, std::uint32_t first, std::uint32_t count, std::byte* to,
                     std::uint32_t* crcs) override {
        const auto it = system_.find(page);
        if (it == system_.end()) {
            std::memset(to, 0, std::size_t{count} * nvme::kSectorBytes);
            std::fill_n(crcs, count, zero_crc_);
            return FlashStatus::kOk;
        }
        copy_sectors_crc32c(to, it->second.data() + std::size_t{first} * nvme::kSectorBytes, count, crcs);
        return FlashStatus::kOk;
    }
    FlashStatus read_oob(PageNumber page, PageOob& oob) override {
        const Record& r = records_[page];
        std::memset(&oob, 0xFF, sizeof(oob));
        if (r.kind == PageKind::kErased) return FlashStatus::kOk;
        oob = {r.vba, r.vid, r.kind, kOobVersion, r.sequence, r.epoch, {}, r.serial, r.group, 0};
        for (std::uint32_t s = 0; s < nvme::kSectorsPerBlock; ++s) oob.sector_crc[s] = zero_crc_;
        if (const auto it = system_.find(page); it != system_.end())
            for (std::uint32_t s = 0; s < nvme::kSectorsPerBlock; ++s)
                oob.sector_crc[s] =
                    crc32c(it->second.data() + std::size_t{s} * nvme::kSectorBytes, nvme::kSectorBytes);
        oob.crc = crc32c(&oob, offsetof(PageOob, crc));
        return FlashStatus::kOk;
    }
    FlashStatus copy_back(PageNumber, PageNumber to, PageOob& oob, std::uint32_t* crcs) override {
        std::fill_n(crcs, nvme::kSectorsPerBlock, zero_crc_);
        return program(to, nullptr, oob);
    }
    FlashStatus erase(std::uint32_t unit) override {
        for (std::uint32_t i = 0; i < geometry_.pages_per_unit; ++i) {
            const PageNumber page = unit * geometry_.pages_per_unit + i;
            if (records_[page].kind == PageKind::kSystem) system_.erase(page);
            records_[page] = {};
        }
        next_[unit] = 0;
        return FlashStatus::kOk;
    }
    using Flash::sync;
    FlashStatus sync(SyncLevel) override { return FlashStatus::kOk; }

  private:
    struct Record {
        std::uint64_t sequence = 0;
        std::uint32_t vba = 0, epoch = 0, serial = 0, group = 0;
        std::uint16_t vid = 0;
        PageKind kind = PageKind::kErased;
    };
    FlashGeometry geometry_;
    std::vector<Record> records_;
    std::vector<std::uint32_t> next_;
    std::unordered_map<PageNumber, std::array<std::byte, nvme::kBlockBytes>> system_;
    std::uint32_t zero_crc_;
};

class Everything : public VolumeRegistry {
  public:
    [[nodiscard]] bool lives(nvme::VolumeId, nvme::Epoch, nvme::BlockAddress) const override { return true; }
    [[nodiscard]] std::vector<std::pair<nvme::VolumeId, nvme::Epoch>> living() const override { return {}; }
};
class NoAnswers : public CompletionSink {
  public:
    void on_complete(std::uint64_t, nvme::Status status, std::uint64_t) override {
        good += ok(status) ? 1 : 0;
    }
    std::uint64_t good = 0;
};

TEST(Scale, AFullDriveOf16GiBRecoversAndReportsItsTime) {
    constexpr std::uint64_t kBlocks = 4ull << 20;
    EngineOptions options;
    const std::uint32_t units = units_for_blocks(kBlocks, 256, 1, options);
    HollowFlash flash({units, 256});
    const Everything lives;
    NoAnswers answers;
    std::vector<std::byte> block(nvme::kBlockBytes);
    std::uint64_t sequence = 0;
    const auto write = [&](Shard& shard, std::uint64_t vba) {
        ShardCommand c{};
        c.op = ShardOp::kWrite;
        c.volume = 1;
        c.first = static_cast<nvme::BlockAddress>(vba);
        c.blocks = 1;
        c.epoch = c.volume_epoch = 1;
        c.tag = c.sequence = ++sequence;
        c.data = block.data();
        shard.execute(c);
        if (sequence % 32 == 0) shard.poll(0);
    };
    std::unique_ptr<Shard> shard;
    const auto mount = [&](const char* what) {
        shard.reset();
        RecoveryReport report{};
        const auto begin = std::chrono::steady_clock::now();
        const std::clock_t cpu = std::clock();
        auto mounted = Shard::mount(flash, {0, 1, 0, units}, options, lives, answers, report);
        const auto taken = std::chrono::steady_clock::now() - begin;
        const double cpu_ms = static_cast<double>(std::clock() - cpu) * 1000 / CLOCKS_PER_SEC;
        ASSERT_TRUE(mounted.ok()) << mounted.error().message;
        shard = std::move(mounted).value();
        std::printf(
            "%s: %lld ms (%.0f of one core), %llu journal pages, %llu young pages, %.1f MiB of tables\n",
            what,
            static_cast<long long>(std::chrono::duration_cast<std::chrono::milliseconds>(taken).count()),
            cpu_ms, static_cast<unsigned long long>(report.journal_pages),
            static_cast<unsigned long long>(report.pages_scanned),
            static_cast<double>(report.memory_bytes) / (1 << 20));
    };
    mount("empty");
    for (std::uint64_t i = 0; i < kBlocks; ++i) write(*shard, i);
    shard->settle();
    ASSERT_EQ(answers.good, kBlocks);
    ASSERT_TRUE(shard->close().ok());
    mount("full, closed");
    ASSERT_EQ(shard->mapped_blocks(), kBlocks);
    SplitMix64 random(1);
    for (std::uint64_t i = 0; i < kBlocks / 10; ++i) write(*shard, random.below(kBlocks));
    mount("full, killed after 1.6 GiB of random writes");
    ASSERT_EQ(shard->mapped_blocks(), kBlocks);
    std::printf("GN_COUNT deengine_recovery_scale_blocks=%llu\n",
                static_cast<unsigned long long>(shard->mapped_blocks()));
}

}  // namespace
}  // namespace gnstor::deengine::test
