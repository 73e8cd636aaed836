// permission_test.cpp: VOLUME ADD / CHMOD / DELETE / LIST, MAP SET and terms: validation, transitions,
// durability.
#include <gtest/gtest.h>

#include "deengine/rig.hpp"

#include <functional>
#include <map>
#include <random>

namespace gnstor::deengine::test {
namespace {

using nvme::AdminOpcode;
using nvme::VolumeRecord;

struct Permission : ::testing::Test {
    Rig rig;
    std::vector<VolumeRecord> list(std::uint32_t first = 0, std::uint32_t room = 16) {
        nvme::Command c = rig.admin_command(AdminOpcode::kVolumeList);
        Block data(sizeof(nvme::VolumeListHeader) + room * sizeof(VolumeRecord), std::byte{0xEE});
        c.cdw10 = first;
        c.cdw11 = static_cast<std::uint32_t>(data.size());
        EXPECT_EQ(rig.admin(c, data).status, Status::kSuccess);
        std::memcpy(&header, data.data(), sizeof(header));
        std::vector<VolumeRecord> out(header.returned);
        if (!out.empty())
            std::memcpy(out.data(), data.data() + sizeof(header), out.size() * sizeof(VolumeRecord));
        return out;
    }
    nvme::VolumeListHeader header{};
};

TEST_F(Permission, EveryFieldOfARecordIsChecked) {
    const std::vector<std::pair<const char*, std::function<void(VolumeRecord&)>>> wrong = {
        {"version", [](auto& r) { r.record_version = 2; }},
        {"VID 0", [](auto& r) { r.geometry.volume = 0; }},
        {"no capacity", [](auto& r) { r.geometry.capacity_blocks = 0; }},
        {"capacity above 2^32", [](auto& r) { r.geometry.capacity_blocks = (1ull << 32) + 1; }},
        {"chunk above MDTS", [](auto& r) { r.geometry.chunk_shift = 6; }},
        {"chunk absurd", [](auto& r) { r.geometry.chunk_shift = 200; }},
        {"no replicas", [](auto& r) { r.geometry.replicas = 0; }},
        {"five replicas", [](auto& r) { r.geometry.replicas = 5; }},
        {"geometry reserved", [](auto& r) { r.geometry.reserved = 1; }},
        {"length above capacity", [](auto& r) { r.byte_length = r.geometry.capacity_blocks * 4096 + 1; }},
        {"epoch before birth", [](auto& r) { r.birth_epoch = r.epoch + 1; }},
        {"too many readers", [](auto& r) { r.reader_count = 65; }},
        {"reader 0", [](auto& r) { r.reader_count = 1; }},
        {"unknown flag", [](auto& r) { r.flags = 8; }},
        {"name not terminated", [](auto& r) { std::memset(r.name, 'a', sizeof(r.name)); }},
        {"name empty", [](auto& r) { std::memset(r.name, 0, sizeof(r.name)); }},
        {"name with a slash", [](auto& r) { r.name[1] = '/'; }},
        {"name hidden", [](auto& r) { r.name[0] = '.'; }},
        {"bytes behind the name", [](auto& r) { r.name[60] = 'x'; }},
        {"owner name not terminated", [](auto& r) { std::memset(r.owner_name, 'a', sizeof(r.owner_name)); }},
        {"owner name with a control character", [](auto& r) { r.owner_name[0] = 7; }},
        {"reserved", [](auto& r) { r.reserved[sizeof(r.reserved) - 1] = 1; }},
    };
    ASSERT_EQ(rig.add(make_record(9, 1)), Status::kSuccess);
    for (const auto& [what, change] : wrong) {
        VolumeRecord r = make_record(3, 7);
        change(r);
        EXPECT_EQ(rig.add(r), Status::kInvalidField) << what;
        r = make_record(9, 1);
        change(r);
        EXPECT_EQ(rig.chmod(r), Status::kInvalidField) << what;
    }
    EXPECT_EQ(list().size(), 1u);
    VolumeRecord largest = make_record(3, 7, 1, 1ull << 32);
    largest.byte_length = largest.geometry.capacity_blocks * 4096;
    largest.geometry.chunk_shift = 5;
    EXPECT_EQ(rig.add(largest), Status::kSuccess);
}

TEST_F(Permission, VidsAndNamesAreTakenOnce) {
    ASSERT_EQ(rig.add(make_record(3, 7)), Status::kSuccess);
    EXPECT_EQ(rig.add(make_record(3, 7)), Status::kVolumeExists);
    VolumeRecord r = make_record(4, 7);
    std::memcpy(r.name, make_record(3, 7).name, sizeof(r.name));
    EXPECT_EQ(rig.add(r), Status::kVolumeExists);
    for (std::uint16_t vid = 100; vid < 115; ++vid) ASSERT_EQ(rig.add(make_record(vid, 7)), Status::kSuccess);
    EXPECT_EQ(rig.add(make_record(4, 7)), Status::kCapacityExceeded) << "max_volumes";
}

TEST(PermissionTable, FindsExactlyTheVolumesThatAModelHasAfterRandomAddsAndRemoves) {
    PermissionTable table;
    std::map<nvme::VolumeId, nvme::Epoch> model;
    std::mt19937_64 random(17);
    constexpr nvme::VolumeId kVids = 40;
    for (int step = 0; step < 4000; ++step) {
        const auto vid = static_cast<nvme::VolumeId>(1 + random() % kVids);
        if (random() % 2 == 0) {
            // A later life of a VID needs a higher epoch.
            const auto epoch = static_cast<nvme::Epoch>(step + 1);
            const auto status = table.add(make_record(vid, 7, epoch), kVids / 2, 8);
            if (model.contains(vid)) {
                ASSERT_EQ(status, Status::kVolumeExists);
            } else if (model.size() == kVids / 2) {
                ASSERT_EQ(status, Status::kCapacityExceeded);
            } else {
                ASSERT_EQ(status, Status::kSuccess);
                model[vid] = epoch;
            }
        } else {
            ASSERT_EQ(table.remove(vid), model.erase(vid) != 0 ? Status::kSuccess : Status::kNoSuchVolume);
        }
        for (nvme::VolumeId v = 0; v <= kVids; ++v) {
            const auto* found = table.find(v);
            ASSERT_EQ(found != nullptr, model.contains(v)) << "VID " << v << ", step " << step;
            if (found == nullptr) continue;
            ASSERT_EQ(found->record.geometry.volume, v);
            ASSERT_EQ(found->record.epoch, model[v]);
        }
    }
}

TEST_F(Permission, ChmodChangesOnlyTheFieldsThatItMayChange) {
    const VolumeRecord original = make_record(3, 7, 5);
    ASSERT_EQ(rig.add(original), Status::kSuccess);
    const auto with = [&](const std::function<void(VolumeRecord&)>& change) {
        VolumeRecord r = original;
        change(r);
        return rig.chmod(r);
    };
    EXPECT_EQ(with([](auto& r) { r.geometry.hash_factor ^= 1; }), Status::kInvalidField);
    EXPECT_EQ(with([](auto& r) { r.geometry.capacity_blocks += 1; }), Status::kInvalidField);
    EXPECT_EQ(with([](auto& r) { r.name[0] = 'V'; }), Status::kInvalidField);
    EXPECT_EQ(with([](auto& r) { r.owner = 8; }), Status::kInvalidField);
    EXPECT_EQ(with([](auto& r) { r.owner_name[0] = 'C'; }), Status::kInvalidField);
    EXPECT_EQ(with([](auto& r) { r.birth_epoch = 4; }), Status::kInvalidField);
    EXPECT_EQ(with([](auto& r) { r.epoch = 4, r.birth_epoch = 4; }), Status::kInvalidField);
    EXPECT_EQ(with([](auto& r) { r.geometry.volume = 4; }), Status::kNoSuchVolume);
    EXPECT_EQ(with([](auto& r) { r.writer = 8; }), Status::kInvalidField) << "a new writer needs a new epoch";
    EXPECT_EQ(with([](auto& r) { r.byte_length = 77, r.flags = 1; }), Status::kSuccess);
    EXPECT_EQ(with([](auto& r) { r.writer = 0; }), Status::kSuccess);
    EXPECT_EQ(with([](auto&) {}), Status::kInvalidField) << "the old writer must not return within its epoch";
    EXPECT_EQ(with([](auto& r) { r.epoch = 6, r.writer = 8; }), Status::kSuccess);
    EXPECT_EQ(with([](auto& r) { r.writer = 0; }), Status::kStaleEpoch) << "epochs never go back";
    const auto records = list();
    ASSERT_EQ(records.size(), 1u);
    EXPECT_EQ(records[0].epoch, 6u);
    EXPECT_EQ(records[0].writer, 8u);
}

TEST_F(Permission, VolumesSurviveAMountByteByByte) {
    std::vector<VolumeRecord> records;
    for (const std::uint16_t vid : {65535, 1, 300, 77}) {
        records.push_back(make_record(vid, 7, vid));
        ASSERT_EQ(rig.add(records.back()), Status::kSuccess);
    }
    ASSERT_EQ(rig.remove(300), Status::kSuccess);
    rig.mount();
    const auto got = list();
    ASSERT_EQ(got.size(), 3u);
    EXPECT_EQ(std::memcmp(&got[0], &records[1], sizeof(VolumeRecord)), 0) << "in order of VID";
    EXPECT_EQ(std::memcmp(&got[1], &records[3], sizeof(VolumeRecord)), 0);
    EXPECT_EQ(std::memcmp(&got[2], &records[0], sizeof(VolumeRecord)), 0);
    EXPECT_EQ(rig.remove(300), Status::kNoSuchVolume);
    EXPECT_EQ(rig.add(make_record(300, 7, 300)), Status::kStaleEpoch);
    EXPECT_EQ(rig.add(make_record(300, 7, 301)), Status::kSuccess);
}

TEST_F(Permission, TheVolumeListIsReadInPieces) {
    for (const std::uint16_t vid : {5, 6, 7}) ASSERT_EQ(rig.add(make_record(vid, 7)), Status::kSuccess);
    EXPECT_EQ(list(0, 2).size(), 2u);
    EXPECT_EQ(header.total, 3u);
    EXPECT_EQ(header.term, 1u);
    const auto rest = list(2, 2);
    ASSERT_EQ(rest.size(), 1u);
    EXPECT_EQ(rest[0].geometry.volume, 7);
    EXPECT_EQ(list(3, 2).size(), 0u);
    EXPECT_EQ(list(0xFFFFFFFF, 2).size(), 0u);
    EXPECT_EQ(list(0, 0).size(), 0u);
    nvme::Command c = rig.admin_command(AdminOpcode::kVolumeList);
    c.cdw11 = 17;
    Block small(16);
    EXPECT_EQ(rig.admin(c, small).status, Status::kDataSglLengthInvalid);
    c.cdw11 = 15;
    EXPECT_EQ(rig.admin(c, small).status, Status::kInvalidField);
}

TEST_F(Permission, MapGetReturnsTheNewestMapAndItsSlotUnderAnyTermToTheDaemonAlone) {
    nvme::Command c = rig.admin_command(AdminOpcode::kMapGet);
    Block data(sizeof(nvme::MapSet));
    ASSERT_EQ(rig.admin(c, data).status, Status::kSuccess);
    nvme::MapSet before{}, after{};
    std::memcpy(&before, data.data(), sizeof(before));
    EXPECT_EQ(before.map.version, 0u) << "it has none yet";
    const nvme::MapSet set = make_map(5, 2);
    ASSERT_EQ(rig.set_map(set), Status::kSuccess);
    c.cdw14 = c.cdw15 = 0;
    ASSERT_EQ(rig.admin(c, data).status, Status::kSuccess);
    std::memcpy(&after, data.data(), sizeof(after));
    EXPECT_EQ(after.slot, set.slot);
    EXPECT_EQ(std::memcmp(&after.map, &set.map, sizeof(set.map)), 0);
    Block small(16);
    EXPECT_EQ(rig.admin(c, small).status, Status::kDataSglLengthInvalid);
    EXPECT_EQ(rig.admin(c, data, {}).status, Status::kAccessDenied);
}

TEST_F(Permission, TheVolumeListStatesTheHighestEpochOfDeletedVolumes) {
    nvme::Command c = rig.admin_command(AdminOpcode::kVolumeList);
    Block data(sizeof(nvme::VolumeListHeader));
    c.cdw11 = static_cast<std::uint32_t>(data.size());
    EXPECT_EQ(rig.admin(c, data).dw0, 0u);
    for (const std::uint32_t epoch : {7u, 40u, 9u}) {
        const auto vid = static_cast<nvme::VolumeId>(epoch);
        ASSERT_EQ(rig.add(make_record(vid, 1, epoch)), Status::kSuccess);
        ASSERT_EQ(rig.remove(vid), Status::kSuccess);
    }
    EXPECT_EQ(rig.admin(c, data).dw0, 40u);
}

TEST_F(Permission, OnlyTheAdminClientMayAdministrate) {
    const VolumeRecord r = make_record(3, 7);
    for (const auto o : {AdminOpcode::kVolumeAdd, AdminOpcode::kVolumeChmod, AdminOpcode::kVolumeDelete,
                         AdminOpcode::kVolumeList, AdminOpcode::kMapSet})
        EXPECT_EQ(rig.admin_with(o, r, Requester{7, false}).status, Status::kAccessDenied);
    for (const auto o : {AdminOpcode::kClean, AdminOpcode::kDelta, AdminOpcode::kIdentify})
        EXPECT_EQ(rig.admin_with(o, r).status, Status::kInvalidOpcode);
    EXPECT_EQ(rig.admin_with(AdminOpcode::kVolumeAdd, std::uint32_t{1}).status,
              Status::kDataSglLengthInvalid);
    EXPECT_EQ(rig.admin_with(AdminOpcode::kMapSet, r).status, Status::kDataSglLengthInvalid);
}

TEST_F(Permission, AnOlderTermIsRefusedAlsoAfterAMount) {
    rig.term = 9'002;
    ASSERT_EQ(rig.add(make_record(5, 7)), Status::kSuccess);
    rig.mount();
    rig.term -= 1;
    const Answer a = rig.admin_with(AdminOpcode::kVolumeAdd, make_record(3, 7));
    EXPECT_EQ(a.status, Status::kStaleTerm);
    EXPECT_EQ(a.dw0, 9'002u) << "the newest term's low half";
    EXPECT_EQ(rig.chmod(make_record(5, 7)), Status::kStaleTerm);
    EXPECT_EQ(rig.set_map(make_map(1)), Status::kStaleTerm);
    EXPECT_EQ(rig.remove(5), Status::kStaleTerm);
    for (const std::uint64_t asking : {0ull, ~0ull}) {
        rig.term = asking;
        EXPECT_EQ(list().size(), 1u);
        EXPECT_EQ(header.term, 9'002u) << "VOLUME LIST must return the newest term and not raise it";
    }
    rig.term = header.term;
    EXPECT_EQ(rig.add(make_record(3, 7)), Status::kSuccess);
    rig.term += 1;
    EXPECT_EQ(rig.remove(99), Status::kNoSuchVolume);
    rig.term -= 1;
    EXPECT_EQ(rig.add(make_record(4, 7)), Status::kSuccess) << "a refused command raises no term";
    rig.term += 1;
    EXPECT_EQ(rig.remove(4), Status::kSuccess);
    rig.term -= 1;
    EXPECT_EQ(rig.remove(3), Status::kStaleTerm);
}

TEST_F(Permission, RevisionsNeverGoBackAndEqualOnesAreEqualBytes) {
    VolumeRecord r = make_record(3, 7);
    r.revision = 4;
    ASSERT_EQ(rig.add(r), Status::kSuccess);
    EXPECT_EQ(rig.chmod(r), Status::kSuccess) << "repeating the same change must succeed";
    r.byte_length = 1;
    EXPECT_EQ(rig.chmod(r), Status::kInvalidField);
    r.revision = 3;
    EXPECT_EQ(rig.chmod(r), Status::kStaleEpoch);
    r.revision = 5;
    EXPECT_EQ(rig.chmod(r), Status::kSuccess);
}

TEST_F(Permission, NoClientReadsAVolumeWhoseDeletionHasBegun) {
    ASSERT_EQ(rig.add(make_record(3, 7)), Status::kSuccess);
    ASSERT_EQ(rig.set_map(make_map(1)), Status::kSuccess);
    ASSERT_EQ(rig.write(rig.fields(3, 7, 0), 1, pattern(5)).status, Status::kSuccess);
    VolumeRecord r = make_record(3, 7);
    r.flags = nvme::kVolumeDeleting | nvme::kVolumeWorldReadable | nvme::kVolumeAnyWriter;
    ASSERT_EQ(rig.chmod(r), Status::kSuccess);
    Block got;
    EXPECT_EQ(rig.read(rig.fields(3, 7, 0), got).status, Status::kAccessDenied);
    EXPECT_EQ(rig.write(rig.fields(3, 7, 0), 2, pattern(5)).status, Status::kAccessDenied);
    EXPECT_EQ(rig.remove(3), Status::kSuccess);
}

TEST_F(Permission, NoChangeIsAcknowledgedBeforeItIsStored) {
    rig.term = 1;
    ASSERT_EQ(rig.add(make_record(3, 7)), Status::kSuccess);
    rig.metadata.fail = true;
    EXPECT_EQ(rig.add(make_record(4, 7)), Status::kInternalError);
    EXPECT_EQ(rig.remove(3), Status::kInternalError);
    EXPECT_EQ(rig.set_map(make_map(1)), Status::kInternalError);
    EXPECT_EQ(rig.engine->map_version(), 0u);
    rig.term = 2;
    EXPECT_EQ(rig.add(make_record(4, 7)), Status::kInternalError) << "the new term could not be stored";
    rig.term = 1;
    EXPECT_EQ(list().size(), 1u);
    rig.metadata.fail = false;
    rig.metadata.limit = rig.metadata.blob.size();
    EXPECT_EQ(rig.add(make_record(4, 7)), Status::kCapacityExceeded) << "the store has no room for another";
    EXPECT_EQ(list().size(), 1u);
}

TEST_F(Permission, MapsAreValidatedAndVersionsAreGivenOutOnce) {
    const std::vector<std::pair<const char*, std::function<void(nvme::MapSet&)>>> wrong = {
        {"version 0", [](auto& m) { m.map.version = 0; }},
        {"no slots", [](auto& m) { m.map.slot_count = 0; }},
        {"too many slots", [](auto& m) { m.map.slot_count = 65; }},
        {"slot beyond", [](auto& m) { m.slot = 2; }},
        {"another drive's slot", [](auto& m) { m.slot = 1; }},
        {"another incarnation", [](auto& m) { m.map.slots[0].ssd_uuid[15] ^= 1; }},
        {"state unknown", [](auto& m) { m.map.slots[1].state = static_cast<placement::SlotState>(9); }},
        {"joining", [](auto& m) { m.map.slots[1].state = placement::SlotState::kJoining; }},
        {"weight 0", [](auto& m) { m.map.slots[1].weight = 0; }},
        {"weight too large", [](auto& m) { m.map.slots[1].weight = 65536; }},
        {"bytes behind the slots", [](auto& m) { m.map.slots[2].domain = 1; }},
    };
    for (const auto& [what, change] : wrong) {
        nvme::MapSet m = make_map(5, 2);
        change(m);
        EXPECT_EQ(rig.set_map(m), Status::kInvalidField) << what;
        EXPECT_EQ(rig.engine->map_version(), 0u);
    }
    ASSERT_EQ(rig.set_map(make_map(5, 2)), Status::kSuccess);
    EXPECT_EQ(rig.engine->map_version(), 5u);
    for (int mounts = 0; mounts < 2; ++mounts) {
        nvme::MapSet other = make_map(5, 2);
        other.map.slots[1].weight = 2;
        EXPECT_EQ(rig.set_map(other), Status::kInvalidField) << "equal version, equal bytes";
        const Answer a = rig.admin_with(AdminOpcode::kMapSet, make_map(4, 2));
        EXPECT_EQ(a.status, Status::kStaleMap);
        EXPECT_EQ(a.dw0, 5u);
        rig.mount();
        EXPECT_EQ(rig.engine->map_version(), 0u) << "known, but not active until it is set again";
    }
    const std::uint64_t stores = rig.metadata.stores;
    ASSERT_EQ(rig.set_map(make_map(5, 2, 100)), Status::kSuccess);
    EXPECT_EQ(rig.metadata.stores, stores) << "a renewal stores nothing";
    ASSERT_EQ(rig.set_map(make_map(6, 2)), Status::kSuccess);
    EXPECT_EQ(rig.engine->map_version(), 6u);
}

}  // namespace
}  // namespace gnstor::deengine::test
