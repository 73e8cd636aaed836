// closed_test.cpp: the commands that compare and make equal the replicas of a volume without a writer, on one drive
// (gnstor/nvme/copy.hpp; docs/array.md, rule 11). Histories of several drives: tests/array.
#include <gnstor/nvme/copy.hpp>

#include "deengine/map/order.hpp"
#include "deengine/rig.hpp"

#include <string>
#include <vector>

namespace gnstor::deengine::test::closed_test {

using nvme::CopyKind;
using nvme::CopyOpcode;
using nvme::CopyRecord;
using nvme::SurveyExtent;

constexpr nvme::VolumeId kVolume = 1;
constexpr nvme::ClientId kClient = 7;

/// A drive of two, in slot 0; every chunk of the volume, of two extents and a half, is on both.
class ClosedRig : public Rig {
  public:
    explicit ClosedRig(placement::SlotState state = placement::SlotState::kIn)
        : Rig(96, 16, few_tombstones()) {
        record = make_record(kVolume, kClient, 1, 640);
        record.geometry.replicas = 2;
        EXPECT_EQ(add(record), Status::kSuccess);
        nvme::MapSet set = make_map(1, 2);
        set.map.slots[0].state = state;
        EXPECT_EQ(set_map(set), Status::kSuccess);
        map_version = 1;
    }
    static EngineOptions few_tombstones() {
        EngineOptions o = default_options();
        o.max_tombstones = 64;
        return o;
    }
    void close() {
        record.writer = 0;
        record.revision += 1;
        EXPECT_EQ(chmod(record), Status::kSuccess);
    }
    void open_next() {
        record.writer = kClient;
        record.epoch += 1;
        record.revision += 1;
        EXPECT_EQ(chmod(record), Status::kSuccess);
    }
    Answer copy(CopyOpcode opcode, std::span<std::byte> data, std::uint32_t first, std::uint32_t blocks,
                nvme::Epoch of = 1, std::uint32_t window = nvme::kCopyClosed) {
        const auto c = nvme::encode_copy(opcode, term, kVolume, first, blocks, map_version, window, of);
        const std::uint64_t before = answers.count;
        engine->submit_admin(c, kAdmin, data, ++tag, now_ns);
        if (answers.count == before) engine->poll(now_ns);
        EXPECT_EQ(answers.count, before + 1);
        return answers.last;
    }
    std::vector<SurveyExtent> survey(std::uint32_t first = 0, std::uint32_t blocks = 640) {
        std::vector<SurveyExtent> extents(nvme::survey_extents(blocks));
        EXPECT_EQ(
            copy(CopyOpcode::kCopySurvey, std::as_writable_bytes(std::span(extents)), first, blocks, 0, 0)
                .status,
            Status::kSuccess);
        return extents;
    }
    CopyRecord version_of(std::uint32_t block) {
        Block data(nvme::copy_bytes(1));
        EXPECT_EQ(copy(CopyOpcode::kCopyRead, data, block, 1).status, Status::kSuccess);
        CopyRecord r;
        std::memcpy(&r, data.data(), sizeof(r));
        return r;
    }
    Status put(std::uint32_t block, CopyRecord r, const Block& contents) {
        Block data(nvme::copy_bytes(1));
        r.content = r.kind == CopyKind::kData ? content_crc_of(contents.data()) : r.content;
        r.resolved_epoch = record.epoch;
        std::memcpy(data.data(), &r, sizeof(r));
        if (!contents.empty()) std::memcpy(data.data() + sizeof(r), contents.data(), nvme::kBlockBytes);
        return copy(CopyOpcode::kCopyWrite, data, block, 1, record.epoch).status;
    }
    static CopyRecord record_of(CopyKind kind, nvme::Epoch epoch, std::uint64_t sequence) {
        return {kind, 0, {}, epoch, sequence, 0, 0, 0, 0};
    }
    Status floor(nvme::Epoch of, std::uint64_t to) {
        nvme::Command c = nvme::encode_floor(kVolume, of, to);
        c.cdw14 = static_cast<std::uint32_t>(term);
        return admin(c, {}).status;
    }
    IoFields at(std::uint32_t block) const {
        IoFields f = fields(kVolume, kClient, block);
        f.epoch = record.epoch;
        return f;
    }
    bool reads(std::uint32_t block, std::uint64_t id) { return holds(at(block), id); }
    nvme::VolumeRecord record;
};

TEST(Closed, ASurveyTellsWhichBlocksAreThereAndWhichMayDiffer) {
    ClosedRig rig;
    EXPECT_EQ(rig.write(rig.at(3), 1, pattern(1)).status, Status::kSuccess);
    EXPECT_EQ(rig.write(rig.at(300), 2, pattern(2)).status, Status::kSuccess);
    EXPECT_EQ(rig.write(rig.at(639), 3, pattern(3)).status, Status::kSuccess);
    EXPECT_EQ(rig.floor(1, 2), Status::kSuccess);
    EXPECT_EQ(rig.zero(rig.at(100), 4).status, Status::kSuccess);
    const auto extents = rig.survey();
    ASSERT_EQ(extents.size(), 3u);
    for (std::uint32_t block = 0; block < 640; ++block)
        EXPECT_EQ(extents[block / 256].has(block % 256), block == 3 || block == 300 || block == 639);
    EXPECT_EQ(extents[0].groups, 1u << 100 / 8) << "block 3 is below the floor";
    EXPECT_EQ(extents[1].groups, 0u);
    EXPECT_EQ(extents[2].groups, 1u << 127 / 8);
    for (const SurveyExtent& extent : extents) {
        EXPECT_EQ(extent.floor, 2u);
        EXPECT_EQ(extent.highest, 4u);
    }
}

TEST(Closed, ASurveyOfChangesTellsTheExtentsThatUnresolvedSequencesTouched) {
    ClosedRig rig;
    const auto changed = [&] {
        std::vector<SurveyExtent> extents(3);
        EXPECT_EQ(rig.copy(CopyOpcode::kCopySurvey, std::as_writable_bytes(std::span(extents)), 0, 640, 0,
                           static_cast<std::uint32_t>(nvme::SurveyKind::kChanges))
                      .status,
                  Status::kSuccess);
        std::vector<bool> answer;
        for (const SurveyExtent& extent : extents)
            answer.push_back((extent.flags & nvme::kExtentUnchanged) == 0);
        return answer;
    };
    EXPECT_EQ(rig.write(rig.at(3), 1, pattern(1)).status, Status::kSuccess);
    EXPECT_EQ(rig.floor(1, 1), Status::kSuccess);
    EXPECT_EQ(changed(), (std::vector<bool>{false, false, false}));
    IoFields across = rig.at(252);  // two extents
    across.blocks = 8;
    EXPECT_EQ(rig.zero(across, 2).status, Status::kSuccess);
    EXPECT_EQ(changed(), (std::vector<bool>{true, true, false}));
    rig.mount();
    EXPECT_EQ(rig.set_map(make_map(2, 2)), Status::kSuccess);
    rig.map_version = 2;
    EXPECT_EQ(changed(), (std::vector<bool>{true, true, true})) << "what the mount found may be anywhere";
    EXPECT_EQ(rig.floor(1, 2), Status::kSuccess);
    EXPECT_EQ(rig.write(rig.at(600), 3, pattern(3)).status, Status::kSuccess);
    EXPECT_EQ(changed(), (std::vector<bool>{false, false, true}));
}

TEST(Closed, SurveysOutsideTheVolumeOrOffAnExtentAreRefused) {
    ClosedRig rig;
    std::vector<SurveyExtent> extents(3);
    const auto survey = [&](std::uint32_t first, std::uint32_t blocks) {
        return rig
            .copy(CopyOpcode::kCopySurvey, std::as_writable_bytes(std::span(extents)), first, blocks, 0, 0)
            .status;
    };
    EXPECT_EQ(survey(0, 640), Status::kSuccess);
    EXPECT_EQ(survey(8, 600), Status::kInvalidField);
    EXPECT_EQ(survey(0, 641), Status::kLbaOutOfRange);
    EXPECT_EQ(survey(1024, 640), Status::kLbaOutOfRange);
    EXPECT_EQ(survey(0, 256), Status::kDataSglLengthInvalid);
    extents.resize(nvme::kSurveyExtentsMax + 1);
    EXPECT_EQ(survey(0, nvme::kSurveyBlocksMax + 1), Status::kInvalidField);
}

TEST(Closed, OnlyAVolumeWithoutAWriterInThisEpochIsReadOrPut) {
    ClosedRig rig;
    Block data(nvme::copy_bytes(1));
    const auto both = [&](nvme::Epoch epoch) {
        const Status read = rig.copy(CopyOpcode::kCopyRead, data, 0, 1, epoch).status;
        CopyRecord r{};
        r.kind = CopyKind::kUnchanged;
        std::memcpy(data.data(), &r, sizeof(r));
        EXPECT_EQ(rig.copy(CopyOpcode::kCopyWrite, data, 0, 1, epoch).status, read);
        return read;
    };
    EXPECT_EQ(both(1), Status::kStaleEpoch) << "it has a writer";
    rig.close();
    EXPECT_EQ(both(1), Status::kSuccess);
    EXPECT_EQ(both(2), Status::kStaleEpoch);
    rig.open_next();
    EXPECT_EQ(both(1), Status::kStaleEpoch) << "a command that was sent before comes late";
    EXPECT_EQ(both(2), Status::kStaleEpoch);
}

TEST(Closed, ARebuildingDriveIsComparedAsWell) {
    ClosedRig rig(placement::SlotState::kRebuilding);
    rig.close();
    EXPECT_EQ(rig.version_of(0).kind, CopyKind::kAbsent);
    (void)rig.survey();
}

TEST(Closed, WhatWasFoundNewestReplacesWhatIsThereAlsoAfterARestart) {
    ClosedRig rig;
    EXPECT_EQ(rig.write(rig.at(0), 9, pattern(9)).status, Status::kSuccess);
    EXPECT_EQ(rig.zero(rig.at(1), 8).status, Status::kSuccess);
    rig.close();
    EXPECT_EQ(rig.put(0, ClosedRig::record_of(CopyKind::kTombstone, 1, 10), {}), Status::kSuccess);
    EXPECT_EQ(rig.put(1, ClosedRig::record_of(CopyKind::kData, 1, 5), pattern(5)), Status::kSuccess);
    EXPECT_EQ(rig.put(2, ClosedRig::record_of(CopyKind::kData, 1, 6), pattern(6)), Status::kSuccess);
    for (int restart = 0; restart < 2; ++restart) {
        EXPECT_TRUE(rig.reads(0, 0));
        EXPECT_TRUE(rig.reads(1, 5));
        EXPECT_TRUE(rig.reads(2, 6));
        rig.mount();
        EXPECT_EQ(rig.set_map(make_map(2, 2)), Status::kSuccess);
        rig.map_version = 2;
    }
}

TEST(Closed, OfTwoCopiesOfABlockTheLaterOneCountsAfterARestart) {
    ClosedRig rig;
    rig.close();
    EXPECT_EQ(rig.put(0, ClosedRig::record_of(CopyKind::kData, 1, 6), pattern(6)), Status::kSuccess);
    EXPECT_EQ(rig.put(0, ClosedRig::record_of(CopyKind::kTombstone, 1, 5), {}), Status::kSuccess);
    EXPECT_EQ(rig.put(0, ClosedRig::record_of(CopyKind::kData, 1, 4), pattern(4)), Status::kSuccess);
    rig.mount();
    EXPECT_EQ(rig.set_map(make_map(2, 2)), Status::kSuccess);
    rig.map_version = 2;
    EXPECT_TRUE(rig.reads(0, 4));
}

TEST(Closed, APageThatHasRottedIsReplacedByTheSameContentsUnderAnOlderOrder) {
    ClosedRig rig;
    rig.close();
    ASSERT_EQ(rig.put(0, ClosedRig::record_of(CopyKind::kData, 1, 6), pattern(6)), Status::kSuccess);
    for (PageNumber page = 0; page < rig.flash.geometry().pages(); ++page) {
        PageOob oob{};
        if (has_data(rig.flash.read_oob(page, oob)) && oob.kind == PageKind::kData && oob.vid == kVolume)
            rig.flash.flip_data(page, 17);
    }
    ASSERT_FALSE(rig.reads(0, 6));
    EXPECT_EQ(rig.put(0, ClosedRig::record_of(CopyKind::kData, 1, 6), pattern(6)), Status::kSuccess);
    EXPECT_TRUE(rig.reads(0, 6));
}

TEST(Closed, ABlockThatIsNamedAsUnchangedStays) {
    ClosedRig rig;
    EXPECT_EQ(rig.write(rig.at(0), 9, pattern(9)).status, Status::kSuccess);
    rig.close();
    EXPECT_EQ(rig.put(0, ClosedRig::record_of(CopyKind::kUnchanged, 0, 0), {}), Status::kSuccess);
    EXPECT_TRUE(rig.reads(0, 9));
    EXPECT_EQ(rig.put(0, ClosedRig::record_of(CopyKind::kUnreadable, 1, 3), {}), Status::kInvalidField);
}

TEST(Closed, TrimsArePutThoughTheTableOfTombstonesIsFull) {
    ClosedRig rig;
    std::uint64_t sequence = 1;  // never resolved
    Status last = Status::kSuccess;
    for (std::uint32_t block = 0; block < 640 && last != Status::kBusy; block += 2)
        last = rig.zero(rig.at(block), ++sequence).status;
    ASSERT_EQ(last, Status::kBusy) << "the table is full";
    rig.close();
    for (std::uint32_t block = 1; block < 640; block += 2)
        ASSERT_EQ(rig.put(block, ClosedRig::record_of(CopyKind::kTombstone, 1, 900), {}), Status::kSuccess);
    EXPECT_EQ(rig.put(0, ClosedRig::record_of(CopyKind::kData, 1, 901), pattern(5)), Status::kSuccess);
    EXPECT_TRUE(rig.reads(0, 5));
    EXPECT_EQ(rig.engine->audit(), std::vector<std::string>{});
}

TEST(Closed, TheFloorOfAComparisonOutlivesACrashAndEndsWithTheNextEpoch) {
    ClosedRig rig;
    EXPECT_EQ(rig.write(rig.at(0), 1, pattern(1)).status, Status::kSuccess);
    rig.close();
    EXPECT_EQ(rig.floor(1, nvme::kClosedFloor), Status::kSuccess);
    rig.mount();
    EXPECT_EQ(rig.set_map(make_map(2, 2)), Status::kSuccess);
    rig.map_version = 2;
    EXPECT_EQ(rig.survey()[0].floor, nvme::kClosedFloor);
    EXPECT_EQ(rig.version_of(0).resolved(), nvme::kClosedFloor);
    EXPECT_EQ(rig.version_of(1).sequence, nvme::kClosedFloor) << "of a block that is not there";
    rig.open_next();
    EXPECT_EQ(rig.survey()[0].floor, 0u);
    EXPECT_EQ(rig.write(rig.at(0), 1, pattern(2)).status, Status::kSuccess);
    EXPECT_TRUE(rig.reads(0, 2));
}

TEST(Closed, OnlyTheDaemonEndsAnEpochAndOnlyWithoutAWriter) {
    ClosedRig rig;
    const auto by_writer = [&](std::uint64_t to) {
        return rig.admin(nvme::encode_floor(kVolume, 1, to), {}, {kClient, false}).status;
    };
    EXPECT_EQ(by_writer(nvme::kClosedFloor), Status::kInvalidField);
    EXPECT_EQ(by_writer(nvme::kFirstStamp), Status::kInvalidField);
    EXPECT_EQ(rig.floor(1, nvme::kFirstStamp), Status::kInvalidField);
    EXPECT_EQ(rig.floor(1, nvme::kClosedFloor), Status::kStaleEpoch) << "it has a writer";
    EXPECT_EQ(rig.write(rig.at(0), nvme::kFirstStamp, pattern(1)).status, Status::kInvalidField);
    EXPECT_EQ(rig.write(rig.at(0), nvme::kFirstStamp - 1, pattern(1)).status, Status::kSuccess);
    rig.close();
    EXPECT_EQ(rig.floor(1, nvme::kClosedFloor), Status::kSuccess);
}

}  // namespace gnstor::deengine::test::closed_test
