// A drive end to end: commands through its NVMe queues from a host thread, deEngine on the reactor, memory
// and file behind.
#include "drive_rig.hpp"
#include "ssd/drive/admin.hpp"
#include "ssd/tools/store_tool.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <set>

namespace gnstor::ssd {
namespace {

using namespace testing;  // NOLINT: the rig's names

DriveOptions memory(std::uint64_t bytes = 32ull << 20) {
    return {.capacity_bytes = bytes, .file = {}, .pages_per_unit = 256, .serial = "RIG"};
}
DriveOptions in_file(const std::filesystem::path& path, Durability d = Durability::kDefault) {
    return {
        .capacity_bytes = 16ull << 20, .file = path, .pages_per_unit = 256, .serial = "RIG", .durability = d};
}

enum class On { kMemory, kFile, kDirect };

class AnyDrive : public ::testing::TestWithParam<On> {
  protected:
    [[nodiscard]] DriveOptions options() const {
        DriveOptions o = GetParam() == On::kMemory ? memory() : in_file(scratch / "s");
        if (GetParam() == On::kDirect) o.backbone = BackboneKind::kDirect;
        return o;
    }
    Scratch scratch{GetParam() == On::kDirect ? direct_place() : Scratch::On::kAny};
    DriveRig rig{options()};
};
std::string name_of(const ::testing::TestParamInfo<On>& p) {
    constexpr const char* kNames[] = {"Memory", "File", "Direct"};
    return kNames[static_cast<std::size_t>(p.param)];
}
INSTANTIATE_TEST_SUITE_P(Backbones, AnyDrive, ::testing::Values(On::kMemory, On::kFile, On::kDirect),
                         name_of);

TEST_P(AnyDrive, WritesReadsSectorsFlushesTrimsAndZeroes) {
    rig.grant();
    rig.add_volume();
    std::vector<std::byte> out(8 * nvme::kBlockBytes);
    for (std::uint64_t i = 0; i < 8; ++i) fill_page(out.data() + i * nvme::kBlockBytes, i + 1);
    std::vector<std::byte> in(out.size(), std::byte{0xEE});
    ASSERT_EQ(rig.read(100, in), Status::kSuccess);
    EXPECT_EQ(in, std::vector<std::byte>(out.size())) << "never written: zeroes";
    ASSERT_EQ(rig.write(100, out), Status::kSuccess);
    ASSERT_EQ(rig.read(100, in), Status::kSuccess);
    EXPECT_EQ(in, out);

    IoFields f = rig.fields(103, 1);
    f.first_sector = 2;
    f.sectors = 3;
    Command c = nvme::encode_io(IoOpcode::kRead, f);
    std::vector<std::byte> part(3 * 512);
    c.data = sgl(part.data(), part.size());
    ASSERT_EQ(call(*rig.io, *rig.reactor, c).result(), Status::kSuccess);
    EXPECT_EQ(std::memcmp(part.data(), out.data() + 3 * 4096 + 2 * 512, part.size()), 0);

    IoFields flush = rig.fields(0, 1);
    EXPECT_EQ(call(*rig.io, *rig.reactor, nvme::encode_io(IoOpcode::kFlush, flush)).result(),
              Status::kSuccess);

    f = rig.fields(0, 1);
    f.sequence = ++rig.sequence;
    c = nvme::encode_trim(f, 2);
    const nvme::DsmRange ranges[2] = {{0, 2, 100}, {0, 1, 105}};
    c.data = sgl(ranges, sizeof ranges);
    ASSERT_EQ(call(*rig.io, *rig.reactor, c).result(), Status::kSuccess);
    f = rig.fields(107, 1);
    f.sequence = ++rig.sequence;
    ASSERT_EQ(call(*rig.io, *rig.reactor, nvme::encode_io(IoOpcode::kWriteZeroes, f)).result(),
              Status::kSuccess);
    ASSERT_EQ(rig.read(100, in), Status::kSuccess);
    for (const std::size_t i : {0u, 1u, 5u, 7u})
        std::memset(out.data() + i * nvme::kBlockBytes, 0, nvme::kBlockBytes);
    EXPECT_EQ(in, out);
    const deengine::EngineCounters n = rig.drive->counters();
    EXPECT_EQ(n.writes, 1u);
    EXPECT_EQ(n.reads, 4u);
    EXPECT_EQ(n.trims, 1u);
    EXPECT_EQ(n.flushes, 1u);
}

TEST_P(AnyDrive, RefusesMalformedAndForbiddenCommandsAndContinuesToServe) {
    rig.grant();
    rig.add_volume();
    std::vector<std::byte> page(nvme::kBlockBytes);
    const auto status = [&](Command c) { return call(*rig.io, *rig.reactor, c).result(); };
    Command good = nvme::encode_io(IoOpcode::kRead, rig.fields(0, 1));
    good.data = sgl(page.data(), page.size());
    Command c = good;
    c.opcode = 0x55;
    EXPECT_EQ(status(c), Status::kInvalidOpcode);
    c = good;
    c.flags = 0;
    EXPECT_EQ(status(c), Status::kInvalidField);
    c = good;
    c.namespace_id = 9;
    EXPECT_EQ(status(c), Status::kInvalidNamespace);
    c = good;
    c.data = SglDescriptor::keyed(1, 4096, 2);
    EXPECT_EQ(status(c), Status::kSglTypeInvalid);
    c = good;
    c.data = sgl(page.data(), 100);
    EXPECT_EQ(status(c), Status::kDataSglLengthInvalid);
    IoFields f = rig.fields(0, 1);
    f.client = kWriter + 1;
    c = nvme::encode_io(IoOpcode::kRead, f);
    c.data = good.data;
    EXPECT_EQ(status(c), Status::kAccessDenied) << "another client's id";
    f = rig.fields(0, 1);
    f.volume = kVolume + 1;
    c = nvme::encode_io(IoOpcode::kRead, f);
    c.data = good.data;
    EXPECT_EQ(status(c), Status::kAccessDenied) << "no such volume";
    f = rig.fields(4096, 1);
    c = nvme::encode_io(IoOpcode::kRead, f);
    c.data = good.data;
    EXPECT_EQ(status(c), Status::kLbaOutOfRange);
    f = rig.fields(0, 1);
    f.map_version = 77;
    c = nvme::encode_io(IoOpcode::kRead, f);
    c.data = good.data;
    const Completion stale = call(*rig.io, *rig.reactor, c);
    EXPECT_EQ(stale.result(), Status::kStaleMap);
    EXPECT_EQ(stale.dw0, 1u) << "the drive's version";
    EXPECT_EQ(status(good), Status::kSuccess);

    NvmeQueue* guest = rig.drive->create_queue(0, 4, 9, Priority::kMedium, false).value();
    Command add{};
    add.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::kVolumeAdd);
    add.flags = nvme::kFlagsSgl;
    const nvme::VolumeRecord r = record_of(9, 9, 10);
    add.data = sgl(&r, sizeof r);
    EXPECT_EQ(call(*guest, *rig.reactor, add).result(), Status::kAccessDenied) << "volumes are the daemon's";
    EXPECT_TRUE(rig.drive->delete_queue(guest).ok());
}

TEST_P(AnyDrive, AClientsQueueMaySendOnlyTheVendorCommandThatRaisesTheFloorOfItsOwnVolume) {
    rig.grant();
    rig.add_volume();
    NvmeQueue* writer = rig.drive->create_queue(0, 4, kWriter, Priority::kMedium, false).value();
    NvmeQueue* guest = rig.drive->create_queue(0, 4, kWriter + 1, Priority::kMedium, false).value();
    Command floor{};
    floor.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::kFloor);
    floor.flags = nvme::kFlagsSgl;
    floor.cdw10 = kVolume;
    floor.cdw11 = 1;  // epoch
    floor.cdw12 = 40;
    EXPECT_EQ(call(*guest, *rig.reactor, floor).result(), Status::kAccessDenied)
        << "a client must not raise the floor of another client's volume";
    rig.sequence = 39;
    std::vector<std::byte> page(nvme::kBlockBytes);
    EXPECT_EQ(rig.write(0, page), Status::kSuccess) << "a refused floor changes nothing";
    EXPECT_EQ(call(*writer, *rig.reactor, floor).result(), Status::kSuccess);
    rig.sequence = 39;
    EXPECT_EQ(rig.write(1, page), Status::kCommandSequenceError) << "sequences up to the floor are over";
    EXPECT_EQ(rig.write(1, page), Status::kSuccess);
    floor.cdw11 = 0;
    EXPECT_EQ(call(*writer, *rig.reactor, floor).result(), Status::kStaleEpoch) << "of an earlier opening";
    for (std::uint32_t opcode = 0xC0; opcode <= 0xFF; ++opcode) {
        if (opcode == static_cast<std::uint32_t>(nvme::AdminOpcode::kFloor)) continue;
        Command other = floor;
        other.opcode = static_cast<std::uint8_t>(opcode);
        other.cdw14 = 0xFFFFFFFF;  // a term that nobody gave
        EXPECT_EQ(call(*writer, *rig.reactor, other).result(), Status::kAccessDenied) << opcode;
    }
    EXPECT_EQ(rig.vendor(nvme::AdminOpcode::kVolumeDelete, nullptr, 0, 99), Status::kNoSuchVolume)
        << "the daemon's term still holds";
    EXPECT_TRUE(rig.drive->delete_queue(guest).ok());
    EXPECT_TRUE(rig.drive->delete_queue(writer).ok());
}

TEST_P(AnyDrive, RandomCommandsNeverHangOrCrashAndEachIsAnsweredOnce) {
    rig.grant();
    rig.add_volume();
    const std::uint64_t seed = seed_or(31337);
    SplitMix64 random(seed);
    std::vector<std::byte> arena(1 << 20);
    std::uint64_t answered = 0;
    std::map<std::uint32_t, std::uint64_t> statuses;
    for (int i = 0; i < 20000; ++i) {
        Command c;
        auto* raw = reinterpret_cast<std::uint8_t*>(&c);
        for (std::size_t b = 0; b < sizeof c; ++b) raw[b] = static_cast<std::uint8_t>(random.next());
        if (random.below(2) == 0) c.flags = nvme::kFlagsSgl;
        if (random.below(4) != 0) c.namespace_id = 1;
        if (random.below(2) == 0) c.cdw11 = (std::uint32_t{kVolume} << 16) | kWriter;
        if (random.below(2) == 0) c.cdw3 = 1;
        if (random.below(2) == 0) c.opcode = static_cast<std::uint8_t>(random.below(10));
        if (random.below(2) == 0) c.cdw12 &= 7;
        if (random.below(2) == 0) c.cdw13 = 0;
        // The address is the offload's to get right: always memory of ours, as long as the length says.
        const std::uint32_t length = random.below(2) == 0
                                         ? ((c.cdw12 & 0xFF) + 1) * 4096
                                         : static_cast<std::uint32_t>(random.below(arena.size()));
        c.data = sgl(arena.data(), std::min<std::size_t>(length, arena.size()));
        if (random.below(8) == 0) c.data.type = static_cast<std::uint8_t>(random.next());
        const bool to_admin = random.below(4) == 0 && c.opcode != 0x0C;
        if (to_admin && c.opcode == static_cast<std::uint8_t>(nvme::AdminOpcode::kMapSet)) continue;
        const Completion done = call(to_admin ? *rig.admin : *rig.io, *rig.reactor, c);
        ++statuses[static_cast<std::uint32_t>(done.result())];
        ++answered;
    }
    std::printf("random commands: %llu answered with %zu statuses, seed %llu (floor 19000)\n",
                static_cast<unsigned long long>(answered), statuses.size(),
                static_cast<unsigned long long>(seed));
    std::printf("GN_COUNT ssd_random_commands=%llu\n", static_cast<unsigned long long>(answered));
    EXPECT_GE(answered, 19000u);
    EXPECT_GE(statuses.size(), 6u);
}

TEST_P(AnyDrive, DeepQueuesOfEveryPriorityAreServedAndNeverOverrun) {
    rig.grant();
    rig.add_volume();
    std::vector<NvmeQueue*> queues;
    for (std::uint16_t i = 0; i < 8; ++i) {
        queues.push_back(rig.drive
                             ->create_queue(static_cast<std::uint16_t>(2 + i), 2u << i, kWriter,
                                            static_cast<Priority>(i % 4), false)
                             .value());
    }
    std::vector<std::byte> page(nvme::kBlockBytes);
    Command c = nvme::encode_io(IoOpcode::kRead, rig.fields(0, 1));
    c.data = sgl(page.data(), page.size());
    constexpr std::uint64_t kEach = 3000;
    std::vector<std::uint64_t> sent(8, 0);
    std::vector<std::uint64_t> done(8, 0);
    std::uint64_t total = 0;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (total < 8 * kEach && std::chrono::steady_clock::now() < deadline) {
        for (std::size_t q = 0; q < 8; ++q) {
            c.command_id = static_cast<std::uint16_t>(sent[q]);
            while (sent[q] < kEach && queues[q]->submit(c))
                c.command_id = static_cast<std::uint16_t>(++sent[q]);
            Completion answer;
            while (queues[q]->reap(answer)) {
                EXPECT_EQ(answer.result(), Status::kSuccess);
                ++done[q];
                ++total;
            }
        }
        rig.reactor->wake();
    }
    for (std::size_t q = 0; q < 8; ++q) EXPECT_EQ(done[q], kEach) << "queue " << q;
    for (NvmeQueue* q : queues) EXPECT_TRUE(rig.drive->delete_queue(q).ok());
    EXPECT_EQ(rig.drive->counters().reads, 8 * kEach) << "commands issued are commands executed";
}

TEST_P(AnyDrive, EventRequestsAreHeldAbortedAndReturned) {
    Command aer{};
    aer.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::kAsyncEventRequest);
    aer.flags = nvme::kFlagsSgl;
    for (std::uint16_t i = 0; i < kAsyncEventRequests; ++i) {
        aer.command_id = static_cast<std::uint16_t>(1000 + i);
        ASSERT_TRUE(rig.admin->submit(aer));
    }
    Command one_more = aer;
    EXPECT_EQ(call(*rig.admin, *rig.reactor, one_more).result(), Status::kAsyncEventLimitExceeded);
    Command abort{};
    abort.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::kAbort);
    abort.flags = nvme::kFlagsSgl;
    abort.command_id = 5;
    abort.cdw10 = 1002u << 16;
    ASSERT_TRUE(rig.admin->submit(abort));
    Completion first;
    Completion second;
    ASSERT_TRUE(reap(*rig.admin, *rig.reactor, first));
    ASSERT_TRUE(reap(*rig.admin, *rig.reactor, second));
    EXPECT_EQ(first.command_id, 1002);
    EXPECT_EQ(first.result(), Status::kAborted);
    EXPECT_EQ(second.command_id, 5);
    EXPECT_EQ(second.dw0 & 1u, 0u);
    abort.cdw10 = 4242u << 16;
    EXPECT_EQ(call(*rig.admin, *rig.reactor, abort).dw0 & 1u, 1u) << "nothing to abort";
    Command keep{};
    keep.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::kKeepAlive);
    keep.flags = nvme::kFlagsSgl;
    EXPECT_EQ(call(*rig.admin, *rig.reactor, keep).result(), Status::kSuccess);
}

TEST(Drive, KeepsEverythingAcknowledgedAcrossRemountsOfItsFile) {
    Scratch scratch;
    const std::uint64_t seed = seed_or(5);
    SplitMix64 random(seed);
    DriveRig rig(in_file(scratch / "s", Durability::kProcess));
    rig.grant();
    rig.add_volume(kVolume, 1000);
    const auto uuid = rig.drive->uuid();
    std::map<std::uint32_t, std::uint64_t> model;
    std::uint64_t writes = 0;
    for (int round = 0; round < 6; ++round) {
        for (int i = 0; i < 150; ++i) {
            const auto block = static_cast<std::uint32_t>(random.below(1000));
            const std::uint64_t contents = random.next();
            const Page page = page_of(contents);
            ASSERT_EQ(rig.write(block, page), Status::kSuccess);
            model[block] = contents;
            ++writes;
        }
        rig.remount();
        EXPECT_EQ(rig.drive->uuid(), uuid) << "the same incarnation";
        EXPECT_EQ(rig.drive->serial(), "RIG");
        Page in;
        for (const auto& [block, contents] : model) {
            ASSERT_EQ(rig.read(block, in), Status::kSuccess);
            ASSERT_EQ(in, page_of(contents)) << "block " << block << " round " << round << " seed " << seed;
        }
    }
    std::printf("remount: %llu writes over 6 remounts (floor 900)\n",
                static_cast<unsigned long long>(writes));
    std::printf("GN_COUNT ssd_remount_writes=%llu\n", static_cast<unsigned long long>(writes));
    EXPECT_GE(writes, 900u);
}

TEST(Drive, OneFlippedByteIsAReadErrorOfThatBlockAlone) {
    Scratch scratch;
    DriveRig rig(in_file(scratch / "s"));
    rig.grant();
    rig.add_volume();
    for (std::uint32_t b = 0; b < 4; ++b) ASSERT_EQ(rig.write(b, page_of(b + 1)), Status::kSuccess);
    rig.unmount();
    ASSERT_TRUE(corrupt_block(scratch / "s", kVolume, 2, 1234).ok());
    rig.mount();
    rig.grant();
    Page in;
    for (std::uint32_t b = 0; b < 4; ++b) {
        EXPECT_EQ(rig.read(b, in), b == 2 ? Status::kUnrecoveredReadError : Status::kSuccess) << b;
        if (b != 2) {
            EXPECT_EQ(in, page_of(b + 1));
        }
    }
    EXPECT_GE(rig.drive->counters().media_errors, 1u);
}

TEST(Drive, WithAnUnreachableTermAcceptsCommandsAgainAfterItsReset) {
    Scratch scratch;
    const auto path = scratch / "s";
    DriveRig rig(in_file(path));
    EXPECT_EQ(reset_term(path, 1).error().code, Errc::kBusy) << "a drive uses it";
    rig.grant();
    rig.add_volume();
    ASSERT_EQ(rig.write(0, page_of(7)), Status::kSuccess);
    rig.unmount();
    ASSERT_EQ(reset_term(path, 1'000'000).value(), 1u);
    EXPECT_EQ(inspect_store(path)->state, BootState::kClean);
    rig.mount();
    const nvme::VolumeRecord r = record_of(kVolume, kWriter, 4096);
    EXPECT_EQ(rig.vendor(nvme::AdminOpcode::kVolumeChmod, &r, sizeof r), Status::kStaleTerm);
    rig.unmount();
    for (const std::uint64_t bad :
         {std::uint64_t{0}, nvme::kTermOfDriveMost + 1, std::uint64_t{1} << 32, ~std::uint64_t{0}}) {
        const auto refused = reset_term(path, bad);
        EXPECT_EQ(refused.error().code, Errc::kInvalidArgument) << bad;
        EXPECT_NE(refused.error().message.find("1 to 1048574"), std::string::npos) << refused.error().message;
    }
    EXPECT_EQ(reset_term(path, 1).value(), 1'000'000u);
    rig.mount();
    rig.grant();
    Page in;
    EXPECT_EQ(rig.read(0, in), Status::kSuccess);
    EXPECT_EQ(in, page_of(7));
}

TEST(Drive, ReportsAWriteCacheOnlyWhenItsFileIsNotSynchronized) {
    Scratch scratch;
    for (const Durability d : {Durability::kPower, Durability::kProcess}) {
        DriveRig rig(in_file(scratch / (d == Durability::kPower ? "a" : "b"), d));
        nvme::IdentifyController id{};
        Command c{};
        c.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::kIdentify);
        c.flags = nvme::kFlagsSgl;
        c.cdw10 = 1;
        c.data = sgl(&id, sizeof id);
        ASSERT_EQ(call(*rig.admin, *rig.reactor, c).result(), Status::kSuccess);
        EXPECT_EQ(id.vwc, d == Durability::kPower ? 0 : 1);
    }
}

TEST(Drive, RefusesImpossibleOptions) {
    auto reactor = Reactor::start("test-drive").value();
    const auto code = [&](const DriveOptions& o) {
        const auto r = Drive::open(o, *reactor);
        return r.ok() ? Errc::kInternal : r.error().code;
    };
    EXPECT_EQ(code({.capacity_bytes = 0, .file = {}, .serial = ""}), Errc::kInvalidArgument);
    EXPECT_EQ(code({.capacity_bytes = 5000, .file = {}, .serial = ""}), Errc::kInvalidArgument);
    EXPECT_EQ(code({.capacity_bytes = ~0ull - 4095, .file = {}, .serial = ""}), Errc::kInvalidArgument);
    EXPECT_EQ(code({.file = {}, .pages_per_unit = 0, .serial = ""}), Errc::kInvalidArgument);
    EXPECT_EQ(code({.file = {}, .serial = "a serial number too long"}), Errc::kInvalidArgument);
    EXPECT_EQ(code({.file = {}, .serial = "", .durability = Durability::kPower}), Errc::kInvalidArgument);
    DriveRig rig(memory());
    for (const std::uint32_t depth : {0u, 1u, 3u, 100u, 131072u}) {
        EXPECT_FALSE(rig.drive->create_queue(5, depth, 1, Priority::kLow, false).ok()) << depth;
    }
    NvmeQueue stranger(1, 4, 0, Priority::kLow, false);
    EXPECT_EQ(rig.drive->delete_queue(&stranger).error().code, Errc::kNotFound);
}

TEST(Drive, DeletingAQueueDuringTrafficDoesNotAffectOthers) {
    DriveRig rig(memory());
    rig.grant();
    rig.add_volume();
    std::vector<std::byte> page(nvme::kBlockBytes);
    Command c = nvme::encode_io(IoOpcode::kRead, rig.fields(0, 1));
    c.data = sgl(page.data(), page.size());
    for (int i = 0; i < 200; ++i) {
        NvmeQueue* q = rig.drive->create_queue(2, 32, kWriter, Priority::kHigh, false).value();
        for (std::uint16_t n = 0; n < 31; ++n) {
            c.command_id = n;
            ASSERT_TRUE(q->submit(c));
        }
        ASSERT_TRUE(rig.drive->delete_queue(q).ok());
        ASSERT_EQ(call(*rig.io, *rig.reactor, c).result(), Status::kSuccess);
    }
}

}  // namespace
}  // namespace gnstor::ssd
