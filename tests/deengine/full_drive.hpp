// full_drive.hpp: a drive filled to its promise, and what each of its blocks must hold.
#pragma once

#include "deengine/log/unit_pool.hpp"
#include "deengine/rig.hpp"
#include "deengine/shard/shard_room.hpp"
#include "support/seed.hpp"

#include <vector>

namespace gnstor::deengine::test {

struct FullDrive {
    static constexpr nvme::VolumeId kVolume = 3;
    static constexpr nvme::ClientId kWriter = 7;

    FullDrive(std::uint32_t units, std::uint32_t pages, const EngineOptions& options, std::uint64_t seed)
        : rig(units, pages, options), random(seed) {
        EXPECT_EQ(rig.add(make_record(kVolume, kWriter, 1, 1u << 20)), Status::kSuccess);
        EXPECT_EQ(rig.set_map(make_map(1)), Status::kSuccess);
        blocks = static_cast<std::uint32_t>(rig.engine->capacity_blocks());
        held.resize(blocks);
        for (std::uint32_t b = 0; b < blocks && !::testing::Test::HasFatalFailure(); ++b) write(b);
    }
    [[nodiscard]] IoFields at(std::uint32_t block) const { return rig.fields(kVolume, kWriter, block); }
    void write(std::uint32_t block) {
        ++sequence;
        held[block] = sequence;
        ASSERT_EQ(rig.write(at(block), sequence, pattern(sequence)).status, Status::kSuccess)
            << "block " << block << " after " << sequence << " writes";
    }
    /// A write into a trimmed range may have to wait for room in the table of tombstones.
    void write_when_not_busy(std::uint32_t block) {
        ++sequence;
        held[block] = sequence;
        for (int attempt = 0; attempt < 2000; ++attempt) {
            const Status status = rig.write(at(block), sequence, pattern(sequence)).status;
            if (ok(status)) return;
            ASSERT_EQ(status, Status::kBusy);
            raise_floor(sequence - 1);
            rig.engine->poll(++rig.now_ns);
        }
        FAIL() << "the write is answered Busy forever";
    }
    /// Uniformly random blocks; a poll now and then, as a drive under load has.
    void overwrite(std::uint64_t writes) {
        for (std::uint64_t i = 0; i < writes && !::testing::Test::HasFatalFailure(); ++i) {
            write(static_cast<std::uint32_t>(random.below(blocks)));
            if (++overwritten % 16 == 0) rig.engine->poll(++rig.now_ns);
        }
    }
    void raise_floor(std::uint64_t floor) {
        nvme::Command c = rig.admin_command(nvme::AdminOpcode::kFloor);
        c.cdw10 = kVolume;
        c.cdw11 = rig.epoch;
        c.cdw12 = static_cast<std::uint32_t>(floor);
        c.cdw13 = static_cast<std::uint32_t>(floor >> 32);
        ASSERT_EQ(rig.admin(c, {}).status, Status::kSuccess);
    }
    void check() {
        for (std::uint32_t b = 0; b < blocks; ++b) ASSERT_TRUE(rig.holds(at(b), held[b]));
    }

    Rig rig;
    SplitMix64 random;
    std::uint32_t blocks = 0;
    std::uint64_t sequence = 0;
    std::uint64_t overwritten = 0;
    std::vector<std::uint64_t> held;
};

}  // namespace gnstor::deengine::test
