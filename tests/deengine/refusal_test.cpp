// refusal_test.cpp: every refusal of an I/O command has its status, leaves no trace, and comes in the
// documented order.
#include <gtest/gtest.h>

#include "deengine/rig.hpp"

#include <algorithm>
#include <functional>

namespace gnstor::deengine::test::refusal_test {

constexpr nvme::VolumeId kVolume = 3;
constexpr nvme::VolumeId kOther = 4;
constexpr nvme::ClientId kWriter = 7, kReader = 8, kStranger = 9;

struct Refusal : ::testing::Test {
    Refusal() {
        nvme::VolumeRecord r = make_record(kVolume, kWriter, 5);
        r.reader_count = 1;
        r.readers[0] = kReader;
        EXPECT_EQ(rig.add(r), Status::kSuccess);
        EXPECT_EQ(rig.add(make_record(kOther, kStranger, 5)), Status::kSuccess);
        EXPECT_EQ(rig.set_map(make_map(9, 4)), Status::kSuccess);
        rig.epoch = 5;
        rig.map_version = 9;
        const nvme::MapSet map = make_map(9, 4);
        for (std::uint32_t chunk = 0; chunk < 16; ++chunk) {
            const bool ours = placement::holds(placement::place(map.map, r.geometry, chunk), 0);
            (ours ? own : foreign).push_back(chunk * 4);
        }
        EXPECT_FALSE(own.empty());
        EXPECT_FALSE(foreign.empty());
    }
    IoFields valid(nvme::ClientId client = kWriter) const {
        IoFields f = rig.fields(kVolume, client, own[0]);
        f.sequence = 100;
        return f;
    }
    Answer run(IoOpcode opcode, IoFields f, const std::function<void(nvme::Command&)>& change = {},
               std::size_t bytes = ~0ull) {
        nvme::Command c = nvme::encode_io(opcode, f);
        if (change) change(c);
        const bool moves = opcode == IoOpcode::kRead || opcode == IoOpcode::kWrite;
        Block data(bytes != ~0ull ? bytes : (moves ? std::size_t{f.blocks} * nvme::kBlockBytes : 0),
                   std::byte{0x5A});
        const std::uint64_t programs = rig.flash.programs;
        const Answer a = rig.io(c, bound, data);
        if (!ok(a.status)) {
            EXPECT_EQ(rig.flash.programs, programs) << "a refused command does nothing";
        }
        return a;
    }
    void each_opcode(const std::function<void(IoOpcode)>& f) {
        for (const IoOpcode o : {IoOpcode::kRead, IoOpcode::kWrite, IoOpcode::kWriteZeroes, IoOpcode::kFlush})
            f(o);
    }
    Rig rig{16, 16};
    nvme::ClientId bound = kWriter;
    std::vector<nvme::BlockAddress> own, foreign;
};

TEST_F(Refusal, NoValidCommandIsRefused) {
    each_opcode([&](IoOpcode o) { EXPECT_EQ(run(o, valid()).status, Status::kSuccess); });
}

TEST_F(Refusal, UnknownOpcodesNamespacesAndFusedCommandsAreRefused) {
    for (int o = 0; o < 256; ++o) {
        if (o <= 2 || o == 8 || o == 9) continue;
        EXPECT_EQ(run(static_cast<IoOpcode>(o), valid()).status, Status::kInvalidOpcode);
    }
    each_opcode([&](IoOpcode o) {
        for (const std::uint32_t nsid : {0u, 2u, 0xFFFFFFFFu})
            EXPECT_EQ(run(o, valid(), [&](nvme::Command& c) { c.namespace_id = nsid; }).status,
                      Status::kInvalidNamespace);
        EXPECT_EQ(run(o, valid(), [](nvme::Command& c) { c.flags |= 1; }).status, Status::kInvalidField);
    });
}

TEST_F(Refusal, AccessIsDeniedAlikeToUnknownClientsForgedClientsAndForUnknownVolumes) {
    each_opcode([&](IoOpcode o) {
        bound = kStranger;
        EXPECT_EQ(run(o, valid(kStranger)).status, Status::kAccessDenied);
        EXPECT_EQ(run(o, valid(kWriter)).status, Status::kAccessDenied)
            << "the connection is another client's";
        bound = 0;
        EXPECT_EQ(run(o, valid(0)).status, Status::kAccessDenied)
            << "a host without a client id has no access";
        bound = kWriter;
        for (const nvme::VolumeId vid : {0, 1, 5, 65535}) {
            IoFields f = valid();
            f.volume = vid;
            f.block = 0xFFFFFFFF;
            f.map_version = 1;
            EXPECT_EQ(run(o, f).status, Status::kAccessDenied) << "no other error may be revealed";
        }
        IoFields f = valid();
        f.volume = kOther;
        EXPECT_EQ(run(o, f).status, Status::kAccessDenied);
    });
}

TEST_F(Refusal, WorldReadableVolumesAreReadByEveryClientAndWrittenByTheirWriter) {
    nvme::VolumeRecord r = make_record(kOther, kStranger, 6);
    r.birth_epoch = 5;
    r.flags = nvme::kVolumeWorldReadable;
    ASSERT_EQ(rig.chmod(r), Status::kSuccess);
    IoFields f = valid();
    f.volume = kOther;
    f.epoch = 6;
    f.block = own[0];
    const auto status = run(IoOpcode::kRead, f).status;
    EXPECT_TRUE(status == Status::kSuccess || status == Status::kWrongSsd);
    EXPECT_EQ(run(IoOpcode::kWrite, f).status, Status::kNamespaceWriteProtected);
    bound = 0;
    f.client = 0;
    EXPECT_EQ(run(IoOpcode::kRead, f).status, Status::kAccessDenied);
}

TEST_F(Refusal, DataIsRefusedWithoutAGrant) {
    each_opcode([&](IoOpcode o) {
        rig.mount();
        EXPECT_EQ(rig.engine->map_version(), 0u);
        EXPECT_EQ(run(o, valid()).status, Status::kNotGranted) << "a drive boots without a grant";
        ASSERT_EQ(rig.set_map(make_map(9, 4, 10)), Status::kSuccess);
        EXPECT_EQ(run(o, valid()).status, Status::kSuccess);
        rig.now_ns += 9'999'999;
        EXPECT_EQ(run(o, valid()).status, Status::kSuccess);
        rig.now_ns += 1;
        EXPECT_EQ(run(o, valid()).status, Status::kNotGranted) << "10 ms after it was given";
        ASSERT_EQ(rig.set_map(make_map(9, 4, 10)), Status::kSuccess);
        EXPECT_EQ(run(o, valid()).status, Status::kSuccess) << "renewed";
    });
}

TEST_F(Refusal, TheMapVersionMustBeEqualAndTheAnswerNamesTheDrives) {
    each_opcode([&](IoOpcode o) {
        for (const std::uint32_t version : {0u, 8u, 10u, 0xFFFFFFFFu}) {
            IoFields f = valid();
            f.map_version = version;
            f.epoch = 1;
            const Answer a = run(o, f);
            EXPECT_EQ(a.status, Status::kStaleMap);
            EXPECT_EQ(a.dw0, 9u);
        }
    });
}

TEST_F(Refusal, EpochsFenceOlderWritersAndDeletedVolumesButNotReadersOfOlderOpenings) {
    nvme::VolumeRecord r = make_record(kVolume, kWriter, 5);
    r.epoch = 8;
    r.reader_count = 1;
    r.readers[0] = kReader;
    ASSERT_EQ(rig.chmod(r), Status::kSuccess);
    each_opcode([&](IoOpcode o) {
        const bool change = o == IoOpcode::kWrite || o == IoOpcode::kWriteZeroes;
        for (const nvme::Epoch epoch : {0u, 4u, 5u, 7u, 8u, 9u}) {
            IoFields f = valid();
            f.epoch = epoch;
            const Status expected = epoch > 8                    ? Status::kNotGranted
                                    : epoch < (change ? 8u : 5u) ? Status::kStaleEpoch
                                                                 : Status::kSuccess;
            EXPECT_EQ(run(o, f).status, expected) << "epoch " << epoch << " opcode " << static_cast<int>(o);
        }
    });
    // The writer before: told that it was superseded, not that the volume is write protected.
    r.epoch = 9;
    r.writer = kReader;
    ASSERT_EQ(rig.chmod(r), Status::kSuccess);
    IoFields f = valid();
    f.epoch = 8;
    EXPECT_EQ(run(IoOpcode::kWrite, f).status, Status::kStaleEpoch);
}

TEST_F(Refusal, ReadersAreWriteProtectedAndTheEpochOfAReleasedWriterIsClosed) {
    bound = kReader;
    EXPECT_EQ(run(IoOpcode::kRead, valid(kReader)).status, Status::kSuccess);
    EXPECT_EQ(run(IoOpcode::kFlush, valid(kReader)).status, Status::kSuccess);
    EXPECT_EQ(run(IoOpcode::kWrite, valid(kReader)).status, Status::kNamespaceWriteProtected);
    EXPECT_EQ(run(IoOpcode::kWriteZeroes, valid(kReader)).status, Status::kNamespaceWriteProtected);
    EXPECT_EQ(rig.trim(valid(kReader), 5, {{0, 1, own[0]}}).status, Status::kNamespaceWriteProtected);
    nvme::VolumeRecord r = make_record(kVolume, kWriter, 5);
    r.writer = 0;
    ASSERT_EQ(rig.chmod(r), Status::kSuccess);
    bound = kWriter;
    EXPECT_EQ(run(IoOpcode::kWrite, valid()).status, Status::kStaleEpoch);
}

TEST_F(Refusal, InvalidFieldsAreRefused) {
    const auto field = [&](IoOpcode o, const std::function<void(IoFields&)>& change,
                           std::size_t bytes = ~0ull) {
        IoFields f = valid();
        change(f);
        return run(o, f, {}, bytes).status;
    };
    EXPECT_EQ(field(IoOpcode::kRead, [](IoFields& f) { f.first_sector = 1; }), Status::kInvalidField);
    EXPECT_EQ(field(IoOpcode::kRead, [](IoFields& f) { f.sectors = 9; }), Status::kInvalidField);
    EXPECT_EQ(field(IoOpcode::kRead, [](IoFields& f) { f.first_sector = 7, f.sectors = 2; }),
              Status::kInvalidField);
    EXPECT_EQ(field(IoOpcode::kRead, [](IoFields& f) { f.first_sector = 255, f.sectors = 255; }),
              Status::kInvalidField);
    EXPECT_EQ(field(IoOpcode::kRead, [](IoFields& f) { f.sectors = 1, f.blocks = 2; }),
              Status::kInvalidField);
    for (const IoOpcode o : {IoOpcode::kRead, IoOpcode::kWrite, IoOpcode::kWriteZeroes}) {
        EXPECT_EQ(field(o, [](IoFields& f) { f.blocks = 33; }), Status::kInvalidField) << "above MDTS";
        EXPECT_EQ(run(o, valid(), [](nvme::Command& c) { c.cdw12 |= 1u << 29; }).status,
                  Status::kInvalidField)
            << "protection information";
    }
    EXPECT_EQ(run(IoOpcode::kRead, valid(), [](nvme::Command& c) { c.cdw13 |= 1u << 17; }).status,
              Status::kInvalidField);
    EXPECT_EQ(field(IoOpcode::kWrite, [](IoFields& f) { f.sequence = 0; }), Status::kInvalidField);
    EXPECT_EQ(field(IoOpcode::kWriteZeroes, [](IoFields& f) { f.sequence = 0; }), Status::kInvalidField);
    EXPECT_EQ(rig.trim(valid(), 0, {{0, 1, own[0]}}).status, Status::kInvalidField);
    EXPECT_EQ(rig.trim(valid(), 1, {{0, 0, own[0]}}).status, Status::kInvalidField);
    EXPECT_EQ(rig.trim(valid(), 1, {{0, 33, own[0]}}).status, Status::kInvalidField);
}

TEST_F(Refusal, DataOfTheWrongLengthIsRefused) {
    for (const IoOpcode o : {IoOpcode::kRead, IoOpcode::kWrite})
        for (const std::size_t bytes : {0u, 1u, 512u, 4095u, 4097u, 8192u})
            EXPECT_EQ(run(o, valid(), {}, bytes).status, Status::kDataSglLengthInvalid) << bytes;
    IoFields f = valid();
    f.sectors = 2;
    EXPECT_EQ(run(IoOpcode::kRead, f, {}, 4096).status, Status::kDataSglLengthInvalid);
    EXPECT_EQ(run(IoOpcode::kRead, f, {}, 1024).status, Status::kSuccess);
    std::vector<nvme::DsmRange> one = {{0, 1, own[0]}};
    EXPECT_EQ(rig.io(nvme::encode_trim(valid(), 2), kWriter, std::as_writable_bytes(std::span(one))).status,
              Status::kDataSglLengthInvalid);
}

TEST_F(Refusal, BlocksPastTheEndAreRefused) {
    for (const nvme::BlockAddress b : {64u, 65u, 0xFFFFFFFFu}) {
        IoFields f = valid();
        f.block = b;
        for (const IoOpcode o : {IoOpcode::kRead, IoOpcode::kWrite, IoOpcode::kWriteZeroes})
            EXPECT_EQ(run(o, f).status, Status::kLbaOutOfRange);
    }
    IoFields f = valid();
    f.block = 63;
    f.blocks = 2;
    EXPECT_EQ(run(IoOpcode::kRead, f).status, Status::kLbaOutOfRange);
    const std::uint64_t programs = rig.flash.programs;
    EXPECT_EQ(rig.trim(valid(), 1, {{0, 1, own[0]}, {0, 1, 64}}).status, Status::kLbaOutOfRange);
    EXPECT_EQ(rig.trim(valid(), 1, {{0, 1, own[0]}, {0, 1, (1ull << 32) + own[0]}}).status,
              Status::kLbaOutOfRange);
    EXPECT_EQ(rig.flash.programs, programs) << "the whole command is checked before any of it is done";
}

TEST_F(Refusal, ChunksOfAnotherDriveAreRefused) {
    for (const nvme::BlockAddress b : foreign)
        for (const IoOpcode o : {IoOpcode::kRead, IoOpcode::kWrite, IoOpcode::kWriteZeroes}) {
            IoFields f = valid();
            f.block = b;
            EXPECT_EQ(run(o, f).status, Status::kWrongSsd);
            f.block = b + 3;
            EXPECT_EQ(run(o, f).status, Status::kWrongSsd);
        }
    // Across a border into a chunk of another drive; and through it to one of ours.
    for (const nvme::BlockAddress b : own) {
        IoFields f = valid();
        f.block = b;
        f.blocks = 5;
        const bool next_is_ours = std::find(own.begin(), own.end(), b + 4) != own.end();
        const Status expected = b + 5 > 64     ? Status::kLbaOutOfRange
                                : next_is_ours ? Status::kSuccess
                                               : Status::kWrongSsd;
        EXPECT_EQ(run(IoOpcode::kRead, f).status, expected);
    }
    EXPECT_EQ(rig.trim(valid(), 1, {{0, 1, own[0]}, {0, 1, foreign[0]}}).status, Status::kWrongSsd);
    // A drive without a slot holds nothing.
    nvme::MapSet out = make_map(10, 4);
    out.slot = 0xFFFFFFFF;
    ASSERT_EQ(rig.set_map(out), Status::kSuccess);
    IoFields f = valid();
    f.map_version = 10;
    EXPECT_EQ(run(IoOpcode::kRead, f).status, Status::kWrongSsd);
}

TEST_F(Refusal, SequencesUpToTheFloorAreRefused) {
    const auto floor = [&](std::uint64_t f, nvme::Epoch epoch, Requester from, nvme::VolumeId vid = kVolume) {
        nvme::Command c = rig.admin_command(nvme::AdminOpcode::kFloor);
        c.cdw10 = vid;
        c.cdw11 = epoch;
        c.cdw12 = static_cast<std::uint32_t>(f);
        c.cdw13 = static_cast<std::uint32_t>(f >> 32);
        return rig.admin(c, {}, from).status;
    };
    EXPECT_EQ(floor(100, 5, {kReader, false}), Status::kAccessDenied);
    EXPECT_EQ(floor(100, 5, {kWriter, false}, 77), Status::kAccessDenied);
    EXPECT_EQ(floor(100, 5, kAdmin, 77), Status::kNoSuchVolume);
    EXPECT_EQ(floor(100, 4, {kWriter, false}), Status::kStaleEpoch);
    EXPECT_EQ(run(IoOpcode::kWrite, valid()).status, Status::kSuccess);
    EXPECT_EQ(floor(1ull << 33, 5, {kWriter, false}), Status::kSuccess);
    IoFields f = valid();
    f.sequence = 1ull << 33;
    EXPECT_EQ(run(IoOpcode::kWrite, f).status, Status::kCommandSequenceError);
    EXPECT_EQ(run(IoOpcode::kRead, f).status, Status::kSuccess);
    EXPECT_EQ(floor(5, 5, {kWriter, false}), Status::kSuccess) << "an older floor changes nothing";
    EXPECT_EQ(run(IoOpcode::kWriteZeroes, f).status, Status::kCommandSequenceError);
    f.sequence += 1;
    EXPECT_EQ(run(IoOpcode::kWrite, f).status, Status::kSuccess);
    // A new opening counts anew.
    nvme::VolumeRecord r = make_record(kVolume, kWriter, 5);
    r.epoch = 6;
    ASSERT_EQ(rig.chmod(r), Status::kSuccess);
    f.epoch = 6;
    f.sequence = 1;
    EXPECT_EQ(run(IoOpcode::kWrite, f).status, Status::kSuccess);
}

}  // namespace gnstor::deengine::test::refusal_test
