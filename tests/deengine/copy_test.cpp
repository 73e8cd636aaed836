// copy_test.cpp: the commands of a rebuild on one drive: who may send them, to which drive, and what COPY WRITE does to
// blocks that are newer, older, trimmed or damaged. Histories of several drives: tests/array.
#include <gnstor/nvme/copy.hpp>

#include "deengine/rig.hpp"

#include <utility>

namespace gnstor::deengine::test::copy_test {

using nvme::CopyKind;
using nvme::CopyOpcode;
using nvme::CopyRecord;

constexpr nvme::VolumeId kVolume = 1;
constexpr nvme::ClientId kClient = 7;

/// A drive of two, in slot 0; every chunk of the volume is on both.
class CopyRig : public Rig {
  public:
    explicit CopyRig(placement::SlotState state) : Rig(24, 16) {
        nvme::VolumeRecord r = make_record(kVolume, kClient);
        r.geometry.replicas = 2;
        EXPECT_EQ(add(r), Status::kSuccess);
        be(state, 1);
    }
    void be(placement::SlotState state, std::uint32_t version) {
        nvme::MapSet set = make_map(version, 2);
        set.map.slots[0].state = state;
        EXPECT_EQ(set_map(set), Status::kSuccess);
        map_version = version;
    }
    Answer copy(CopyOpcode opcode, Block& data, std::uint32_t window = 0, std::uint32_t first = 0,
                std::uint32_t blocks = 1, Requester from = kAdmin, nvme::Epoch donor_epoch = 1) {
        const auto c =
            nvme::encode_copy(opcode, term, kVolume, first, blocks, map_version, window, donor_epoch);
        const std::uint64_t before = answers.count;
        engine->submit_admin(c, from, data, ++tag, now_ns);
        if (answers.count == before) engine->poll(now_ns);
        EXPECT_EQ(answers.count, before + 1);
        return answers.last;
    }
    std::uint32_t open(std::uint32_t first = 0, std::uint32_t blocks = 1) {
        Block none;
        const Answer a = copy(CopyOpcode::kCopyOpen, none, 0, first, blocks);
        EXPECT_EQ(a.status, Status::kSuccess);
        return a.dw0;
    }
    CopyRecord read_record(std::uint32_t block, Block& contents) {
        Block data(nvme::copy_bytes(1));
        EXPECT_EQ(copy(CopyOpcode::kCopyRead, data, 0, block).status, Status::kSuccess);
        CopyRecord r;
        std::memcpy(&r, data.data(), sizeof(r));
        contents.assign(data.begin() + sizeof(r), data.end());
        return r;
    }
    Status put(std::uint32_t window, const CopyRecord& r, const Block& contents, std::uint32_t block = 0) {
        Block data(nvme::copy_bytes(1));
        std::memcpy(data.data(), &r, sizeof(r));
        if (!contents.empty()) std::memcpy(data.data() + sizeof(r), contents.data(), nvme::kBlockBytes);
        return copy(CopyOpcode::kCopyWrite, data, window, block).status;
    }
    /// What lies in any block now cannot be read any more.
    void spoil_data_pages() {
        for (PageNumber page = 0; page < flash.geometry().pages(); ++page) {
            PageOob oob{};
            if (has_data(flash.read_oob(page, oob)) && oob.kind == PageKind::kData && oob.vid == kVolume)
                flash.unreadable.insert(page);
        }
    }
    IoFields at(std::uint32_t block) const { return fields(kVolume, kClient, block); }
    /// What a donor would send of a write of pattern `id`.
    static std::pair<CopyRecord, Block> version(nvme::Epoch epoch, std::uint64_t sequence, std::uint64_t id) {
        CopyRig donor(placement::SlotState::kIn);
        donor.write(donor.at(0), sequence, pattern(id));
        Block contents;
        CopyRecord r = donor.read_record(0, contents);
        r.epoch = epoch;
        return {r, contents};
    }
};

constexpr auto kIn = placement::SlotState::kIn;
constexpr auto kRebuilding = placement::SlotState::kRebuilding;

TEST(Copy, OnlyTheAdminHostMaySendItsCommands) {
    CopyRig rig(kRebuilding);
    Block data(nvme::copy_bytes(1));
    for (const auto opcode : {CopyOpcode::kCopyOpen, CopyOpcode::kCopyRead, CopyOpcode::kCopyWrite})
        EXPECT_EQ(rig.copy(opcode, data, 0, 0, 1, {kClient, false}).status, Status::kAccessDenied);
}

TEST(Copy, DonorsAreIn) {
    CopyRig rig(kRebuilding);
    Block data(nvme::copy_bytes(1));
    EXPECT_EQ(rig.copy(CopyOpcode::kCopyRead, data).status, Status::kWrongSsd);
    rig.be(kIn, 2);
    EXPECT_EQ(rig.copy(CopyOpcode::kCopyRead, data).status, Status::kSuccess);
}

TEST(Copy, ADriveThatIsInChangesOnlyBlocksThatItCannotRead) {
    CopyRig rig(kIn);
    const auto [record, contents] = CopyRig::version(1, 5, 50);
    EXPECT_EQ(rig.write(rig.at(0), 3, pattern(3)).status, Status::kSuccess);
    EXPECT_EQ(rig.put(rig.open(), record, contents), Status::kSuccess);
    EXPECT_TRUE(rig.holds(rig.at(0), 3)) << "older than the donor's, but sound: a scrub does not decide";
    EXPECT_EQ(rig.put(rig.open(9), record, contents, 9), Status::kSuccess);
    EXPECT_TRUE(rig.holds(rig.at(9), 0)) << "a block that is not there can be read, too";
    rig.spoil_data_pages();
    EXPECT_EQ(rig.put(rig.open(), record, contents), Status::kSuccess);
    EXPECT_TRUE(rig.holds(rig.at(0), 50));
    rig.mount();
    rig.be(kIn, 2);
    EXPECT_TRUE(rig.holds(rig.at(0), 50));
}

TEST(Copy, WhatTheDonorLacksOrHasOlderIsNotMendedThoughItsFloorIsHigher) {
    CopyRig rig(kIn);
    EXPECT_EQ(rig.write(rig.at(0), 7, pattern(7)).status, Status::kSuccess);
    rig.spoil_data_pages();
    auto [record, contents] = CopyRig::version(1, 5, 50);
    record.resolved_epoch = 1;
    record.resolved_low = 9;
    EXPECT_EQ(rig.put(rig.open(), record, contents), Status::kUnrecoveredReadError)
        << "the donor has lost the version 7";
    CopyRecord absent{};
    absent.epoch = absent.resolved_epoch = 1;
    absent.sequence = absent.resolved_low = 9;
    EXPECT_EQ(rig.put(rig.open(), absent, {}), Status::kUnrecoveredReadError);
}

TEST(Copy, ADriveThatLostANewerVersionIsNotMendedWithAnOlderOne) {
    CopyRig rig(kIn);
    const auto [record, contents] = CopyRig::version(1, 5, 50);
    EXPECT_EQ(rig.write(rig.at(0), 7, pattern(7)).status, Status::kSuccess);
    rig.spoil_data_pages();
    EXPECT_FALSE(nvme::ok(rig.put(rig.open(), record, contents)));
    Block got;
    EXPECT_EQ(rig.read(rig.at(0), got).status, Status::kUnrecoveredReadError);
    const auto [equal, newest] = CopyRig::version(1, 7, 7);
    EXPECT_EQ(rig.put(rig.open(), equal, newest), Status::kSuccess);
    EXPECT_TRUE(rig.holds(rig.at(0), 7));
}

TEST(Copy, AClientReadsNothingFromARebuildingDrive) {
    CopyRig rig(kRebuilding);
    EXPECT_EQ(rig.write(rig.at(0), 1, pattern(1)).status, Status::kSuccess);
    Block got;
    EXPECT_EQ(rig.read(rig.at(0), got).status, Status::kWrongSsd);
    rig.be(kIn, 2);
    EXPECT_TRUE(rig.holds(rig.at(0), 1));
}

TEST(Copy, RangesLengthsAndVersionsAreChecked) {
    CopyRig rig(kRebuilding);
    Block data(nvme::copy_bytes(nvme::kCopyBlocksMax + 1));
    EXPECT_EQ(rig.copy(CopyOpcode::kCopyOpen, data, 0, 0, nvme::kCopyBlocksMax + 1).status,
              Status::kInvalidField);
    EXPECT_EQ(rig.copy(CopyOpcode::kCopyOpen, data, 0, 60, 8).status, Status::kLbaOutOfRange);
    EXPECT_EQ(rig.copy(CopyOpcode::kCopyWrite, data, 1, 0, 1).status, Status::kDataSglLengthInvalid);
    rig.map_version = 9;
    const Answer stale = rig.copy(CopyOpcode::kCopyOpen, data);
    EXPECT_EQ(stale.status, Status::kStaleMap);
    EXPECT_EQ(stale.dw0, 1u);
}

TEST(Copy, AVersionIsPutWithItsOrderWhereNothingIs) {
    CopyRig rig(kRebuilding);
    const auto [record, contents] = CopyRig::version(1, 5, 50);
    EXPECT_EQ(rig.put(rig.open(), record, contents), Status::kSuccess);
    // An older write finds it newer, a newer one replaces it.
    EXPECT_EQ(rig.write(rig.at(0), 4, pattern(40)).status, Status::kSuccess);
    rig.be(kIn, 2);
    EXPECT_TRUE(rig.holds(rig.at(0), 50));
    EXPECT_EQ(rig.write(rig.at(0), 6, pattern(60)).status, Status::kSuccess);
    EXPECT_TRUE(rig.holds(rig.at(0), 60));
}

TEST(Copy, AVersionIsPutThoughTheFloorHasPassedIt) {
    CopyRig rig(kRebuilding);
    const auto [record, contents] = CopyRig::version(1, 5, 50);
    const auto floor = nvme::encode_floor(kVolume, 1, 30);
    EXPECT_EQ(rig.admin(floor, {}, {kClient, false}).status, Status::kSuccess);
    EXPECT_EQ(rig.put(rig.open(), record, contents), Status::kSuccess);
    rig.be(kIn, 2);
    EXPECT_TRUE(rig.holds(rig.at(0), 50));
}

TEST(Copy, ANewerBlockAndANewerTrimStay) {
    CopyRig rig(kRebuilding);
    const auto [record, contents] = CopyRig::version(1, 5, 50);
    EXPECT_EQ(rig.write(rig.at(0), 7, pattern(70)).status, Status::kSuccess);
    EXPECT_EQ(rig.put(rig.open(), record, contents), Status::kSuccess);
    EXPECT_EQ(rig.zero(rig.at(1), 8).status, Status::kSuccess);
    const std::uint32_t window = rig.open(1);
    // The tombstone is gone when the copy arrives; the window still knows the trim.
    EXPECT_EQ(rig.admin(nvme::encode_floor(kVolume, 1, 8), {}, {kClient, false}).status, Status::kSuccess);
    EXPECT_EQ(rig.put(window, record, contents, 1), Status::kSuccess);
    rig.be(kIn, 2);
    EXPECT_TRUE(rig.holds(rig.at(0), 70));
    EXPECT_TRUE(rig.holds(rig.at(1), 0));
}

TEST(Copy, AResolvedVersionThatTheDonorHasNoMoreIsRemovedAndANewerOneStays) {
    CopyRig donor(kIn);
    EXPECT_EQ(donor.write(donor.at(0), 1, pattern(1)).status, Status::kSuccess);
    EXPECT_EQ(donor.zero(donor.at(0), 2).status, Status::kSuccess);
    EXPECT_EQ(donor.admin(nvme::encode_floor(kVolume, 1, 2), {}, {kClient, false}).status, Status::kSuccess);
    Block contents;
    const CopyRecord absent = donor.read_record(0, contents);
    EXPECT_EQ(absent.kind, CopyKind::kAbsent);
    EXPECT_EQ(absent.sequence, 2u);
    CopyRig rig(kRebuilding);
    EXPECT_EQ(rig.write(rig.at(0), 1, pattern(1)).status, Status::kSuccess);
    EXPECT_EQ(rig.put(rig.open(), absent, contents), Status::kSuccess);
    EXPECT_EQ(rig.write(rig.at(1), 3, pattern(3)).status, Status::kSuccess);
    EXPECT_EQ(rig.put(rig.open(1), absent, contents, 1), Status::kSuccess);
    rig.be(kIn, 2);
    EXPECT_TRUE(rig.holds(rig.at(0), 0));
    EXPECT_TRUE(rig.holds(rig.at(1), 3));
}

TEST(Copy, ContentsThatDoNotMatchTheirRecordAreRefused) {
    CopyRig rig(kRebuilding);
    auto [record, contents] = CopyRig::version(1, 5, 50);
    contents[100] ^= std::byte{1};
    EXPECT_EQ(rig.put(rig.open(), record, contents), Status::kDataTransferError);
    for (const auto kind : {CopyKind::kUnreadable, static_cast<CopyKind>(9)}) {
        CopyRecord r = record;
        r.kind = kind;
        EXPECT_EQ(rig.put(rig.open(), r, contents), Status::kInvalidField);
    }
    CopyRecord r = record;
    r.epoch = 0;
    EXPECT_EQ(rig.put(rig.open(), r, contents), Status::kInvalidField) << "before the volume's life";
    r.epoch = 2;
    EXPECT_EQ(rig.put(rig.open(), r, contents), Status::kNotGranted)
        << "this drive has not heard of the epoch yet";
    rig.be(kIn, 2);
    EXPECT_TRUE(rig.holds(rig.at(0), 0));
}

TEST(Copy, AClosedWindowIsRefused) {
    CopyRig rig(kRebuilding);
    const auto [record, contents] = CopyRig::version(1, 5, 50);
    EXPECT_EQ(rig.put(0, record, contents), Status::kCommandSequenceError);
    const std::uint32_t first = rig.open();
    for (int i = 0; i < 4; ++i) rig.open();
    EXPECT_EQ(rig.put(first, record, contents), Status::kCommandSequenceError);
    const std::uint32_t last = rig.open();
    EXPECT_EQ(rig.put(last, record, contents, 1), Status::kCommandSequenceError) << "of another range";
    rig.mount();
    rig.engine->poll(rig.now_ns += 1000);  // the machine's time does not stand still during a restart
    rig.be(kRebuilding, 2);
    EXPECT_EQ(rig.put(last, record, contents), Status::kCommandSequenceError) << "of an earlier mount";
    EXPECT_NE(rig.open(), first);
}

TEST(Copy, ADonorOfAnOlderEpochThanTheWindowIsRefused) {
    CopyRig rig(kRebuilding);
    nvme::VolumeRecord next = make_record(kVolume, kClient);
    next.geometry.replicas = 2;
    next.epoch = 2;
    next.revision = 1;
    EXPECT_EQ(rig.chmod(next), Status::kSuccess);
    Block data(nvme::copy_bytes(1));
    const std::uint32_t window = rig.open();
    EXPECT_EQ(rig.copy(CopyOpcode::kCopyWrite, data, window, 0, 1, kAdmin, 1).status,
              Status::kCommandSequenceError);
    const CopyRecord absent{CopyKind::kAbsent, 0, {}, 2, 0, 0, 0, 0, 0};
    std::memcpy(data.data(), &absent, sizeof(absent));
    EXPECT_EQ(rig.copy(CopyOpcode::kCopyWrite, data, window, 0, 1, kAdmin, 2).status, Status::kSuccess);
}

TEST(Copy, AWindowOpensOnlyWhenEveryTrimIsResolvedOrHasItsTombstone) {
    CopyRig rig(kRebuilding);
    EXPECT_EQ(rig.zero(rig.at(0), 1).status, Status::kSuccess);
    (void)rig.open();
    rig.mount();  // the journal has the trim
    rig.be(kRebuilding, 2);
    (void)rig.open();
    EXPECT_TRUE(rig.engine->close().ok());
    rig.mount();  // a checkpoint does not tell whether that trim had room for a tombstone
    rig.be(kRebuilding, 3);
    Block none;
    EXPECT_EQ(rig.copy(CopyOpcode::kCopyOpen, none).status, Status::kBusy);
    EXPECT_EQ(rig.admin(nvme::encode_floor(kVolume, 1, 1), {}, {kClient, false}).status, Status::kSuccess);
    EXPECT_EQ(rig.copy(CopyOpcode::kCopyOpen, none).status, Status::kSuccess);
}

TEST(Copy, ABlockOfUnknownOrderIsReplacedOnceItsBoundIsResolved) {
    CopyRig rig(kRebuilding);
    EXPECT_EQ(rig.write(rig.at(0), 9, pattern(9)).status, Status::kSuccess);
    for (PageNumber page = 0; page < rig.flash.geometry().pages(); ++page) {
        PageOob oob{};
        if (has_data(rig.flash.read_oob(page, oob)) && oob.kind == PageKind::kData && oob.vid == kVolume)
            rig.flash.flip_record(page);
    }
    const auto [record, contents] = CopyRig::version(1, 5, 50);
    EXPECT_EQ(rig.put(rig.open(), record, contents), Status::kUnrecoveredReadError);
    EXPECT_EQ(rig.put(rig.open(), record, contents), Status::kUnrecoveredReadError);
    EXPECT_EQ(rig.admin(nvme::encode_floor(kVolume, 1, 9), {}, {kClient, false}).status, Status::kSuccess);
    EXPECT_EQ(rig.put(rig.open(), record, contents), Status::kUnrecoveredReadError)
        << "the donor was read before the version 9 was resolved, and may have taken it since";
    CopyRecord later = record;
    later.resolved_epoch = 1;
    later.resolved_low = 9;
    EXPECT_EQ(rig.put(rig.open(), later, contents), Status::kSuccess);
    rig.be(kIn, 2);
    EXPECT_TRUE(rig.holds(rig.at(0), 50));
}

TEST(Copy, ADonorTellsWhatItCannotRead) {
    CopyRig rig(kIn);
    EXPECT_EQ(rig.write(rig.at(0), 5, pattern(5)).status, Status::kSuccess);
    rig.spoil_data_pages();
    Block contents;
    EXPECT_EQ(rig.read_record(0, contents).kind, CopyKind::kUnreadable);
    EXPECT_EQ(rig.read_record(1, contents).kind, CopyKind::kAbsent);
    EXPECT_TRUE(same_bytes(contents, pattern(0)));
}

TEST(Copy, WhatWasPutSurvivesAKill) {
    CopyRig rig(kRebuilding);
    const auto [record, contents] = CopyRig::version(1, 5, 50);
    EXPECT_EQ(rig.put(rig.open(), record, contents), Status::kSuccess);
    rig.mount();
    rig.be(kIn, 2);
    EXPECT_TRUE(rig.holds(rig.at(0), 50));
}

}  // namespace gnstor::deengine::test::copy_test
