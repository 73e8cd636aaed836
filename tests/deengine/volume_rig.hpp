// volume_rig.hpp: a drive with one volume, which one client writes and reads.
#pragma once

#include "deengine/rig.hpp"

namespace gnstor::deengine::test {

inline constexpr nvme::VolumeId kVolume = 1;
inline constexpr nvme::ClientId kClient = 7;

class VolumeRig : public Rig {
  public:
    explicit VolumeRig(EngineOptions o) : Rig(24, 16, o) {
        EXPECT_EQ(add(make_record(kVolume, kClient)), Status::kSuccess);
        EXPECT_EQ(set_map(make_map(1)), Status::kSuccess);
    }
    [[nodiscard]] IoFields at(nvme::BlockAddress block, bool accept_older = false) const {
        IoFields f = fields(kVolume, kClient, block);
        f.accept_older = accept_older;
        return f;
    }
    void put(nvme::BlockAddress block, std::uint64_t sequence) {
        ASSERT_EQ(write(at(block), sequence, pattern(sequence)).status, Status::kSuccess);
    }
    Status status_of(nvme::BlockAddress block) {
        Block got;
        return read(at(block), got).status;
    }
    void boot(bool same_boot = false) {
        options.same_boot = same_boot;
        mount();
        ASSERT_EQ(set_map(make_map(1)), Status::kSuccess);
    }
    /// Eight seconds without a command.
    void idle() {
        for (int i = 0; i < 8; ++i) engine->poll(now_ns += 1'000'000'000);
    }
};

}  // namespace gnstor::deengine::test
