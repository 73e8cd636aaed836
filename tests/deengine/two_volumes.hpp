// two_volumes.hpp: a fixture of tests that want a drive with two volumes of one writer.
#pragma once

#include "deengine/rig.hpp"

namespace gnstor::deengine::test {

class TwoVolumes : public ::testing::Test {
  protected:
    static constexpr nvme::ClientId kWriter = 7;
    static constexpr nvme::VolumeId kVolume = 3;
    static constexpr nvme::VolumeId kOther = 4;

    static void set_up(Rig& rig, std::uint64_t blocks) {
        ASSERT_EQ(rig.add(make_record(kVolume, kWriter, 1, blocks)), Status::kSuccess);
        ASSERT_EQ(rig.add(make_record(kOther, kWriter, 1, blocks)), Status::kSuccess);
        ASSERT_EQ(rig.set_map(make_map(1)), Status::kSuccess);
    }
    static IoFields at(const Rig& rig, nvme::BlockAddress block, std::uint32_t blocks = 1,
                       nvme::VolumeId vid = kVolume) {
        return rig.fields(vid, kWriter, block, blocks);
    }
};

}  // namespace gnstor::deengine::test
