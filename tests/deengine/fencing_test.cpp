// fencing_test.cpp: terms and grants (nvme/fencing.hpp; docs/array.md, rules 1 and 3): what is refused
// changes nothing, no term leaps or wraps, and a grant ends by either clock, counted from when it was asked
// for.
#include "deengine/rig.hpp"

#include <gnstor/base/hash.hpp>

using namespace gnstor;
using namespace gnstor::deengine;
using namespace gnstor::deengine::test;
using nvme::AdminOpcode;
using nvme::kTermLeapMost;

namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint32_t kGrantMs = 10;

class Fencing : public ::testing::Test {
  protected:
    Rig rig{16, 16};
    std::uint64_t wall = 1'700'000'000ull * 1'000'000'000;

    void pass(std::uint64_t boot_ns, std::uint64_t wall_ns) {
        rig.now_ns += boot_ns;
        wall += wall_ns;
        rig.engine->observe({rig.now_ns, wall});
    }
    Status read() {
        Block got;
        return rig.read(rig.fields(3, 7, 0), got).status;
    }
    void SetUp() override {
        rig.engine->observe({rig.now_ns, wall});
        ASSERT_EQ(rig.add(make_record(3, 7)), Status::kSuccess);
    }
};

TEST_F(Fencing, ATermImplausiblyFarAheadIsRefusedAndNotStored) {
    rig.term = 5;
    ASSERT_EQ(rig.add(make_record(4, 7)), Status::kSuccess);
    const auto before = rig.engine->firmware_state();
    const auto stored = rig.metadata.blob;
    for (const std::uint64_t term :
         {5 + kTermLeapMost + 1, std::uint64_t{1} << 63, ~std::uint64_t{0} - 1, ~std::uint64_t{0}}) {
        rig.term = term;
        const Answer a = rig.admin_with(AdminOpcode::kVolumeAdd, make_record(5, 7));
        EXPECT_EQ(a.status, Status::kCommandSequenceError);
        EXPECT_EQ(a.dw0, 5u) << "the newest term's low half";
        EXPECT_EQ(rig.set_map(make_map(1)), Status::kCommandSequenceError);
        EXPECT_EQ(rig.remove(4), Status::kCommandSequenceError);
        EXPECT_EQ(rig.admin(rig.admin_command(nvme::kGrantAsk), {}).status, Status::kCommandSequenceError);
        EXPECT_EQ(rig.admin(rig.admin_command(AdminOpcode::kFloor), {}).status,
                  Status::kCommandSequenceError);
    }
    EXPECT_EQ(rig.engine->firmware_state(), before);
    EXPECT_EQ(rig.metadata.blob, stored);
    rig.term = 5 + kTermLeapMost;
    EXPECT_EQ(rig.add(make_record(5, 7)), Status::kSuccess)
        << "a term at the largest allowed distance must be accepted";
}

TEST_F(Fencing, TheLargestTermIsNeverAccepted) {
    EXPECT_TRUE(nvme::is_plausible_term(~0ull - 1, ~0ull - 5));
    EXPECT_FALSE(nvme::is_plausible_term(~0ull, ~0ull - 1)) << "no term could follow the largest one";
    EXPECT_FALSE(nvme::is_plausible_term(0, ~0ull - 1)) << "distances do not wrap";
    EXPECT_FALSE(nvme::is_plausible_term(~0ull, 0));
}

TEST_F(Fencing, ATermIsStoredTogetherWithTheChangeThatCarriesIt) {
    const auto stores = rig.metadata.stores;
    rig.term = 9;
    ASSERT_EQ(rig.add(make_record(4, 7)), Status::kSuccess);
    EXPECT_EQ(rig.metadata.stores, stores + 1);
    rig.mount();
    rig.term = 8;
    EXPECT_EQ(rig.remove(4), Status::kStaleTerm);
}

TEST_F(Fencing, ARenewalAndAFloorRaiseTheTermToo) {
    ASSERT_EQ(rig.set_map(make_map(1)), Status::kSuccess);
    rig.term = 2;
    ASSERT_EQ(rig.set_map(make_map(1)), Status::kSuccess);
    rig.term = 1;
    EXPECT_EQ(rig.set_map(make_map(1)), Status::kStaleTerm);
    rig.term = 3;
    nvme::Command c = rig.admin_command(AdminOpcode::kFloor);
    c.cdw10 = 3;
    c.cdw11 = 1;
    c.cdw12 = 40;
    ASSERT_EQ(rig.admin(c, {}).status, Status::kSuccess);
    EXPECT_EQ(rig.write(rig.fields(3, 7, 0), 40, pattern(1)).status, Status::kCommandSequenceError);
    rig.term = 2;
    EXPECT_EQ(rig.set_map(make_map(1)), Status::kStaleTerm);
}

/// Nearly right commands of every kind, and far from right ones: of a refused one there is no trace, in
/// memory, in the store, in the grant.
TEST_F(Fencing, ARefusedCommandChangesNothing) {
    ASSERT_EQ(rig.set_map(make_map(2)), Status::kSuccess);
    std::uint64_t drawn = 16;
    const auto below = [&](std::uint64_t n) { return mix64(++drawn) % n; };
    std::uint32_t refused = 0, accepted = 0;
    for (int i = 0; i < 20'000; ++i) {
        static constexpr AdminOpcode kOpcodes[] = {AdminOpcode::kVolumeAdd,    AdminOpcode::kVolumeChmod,
                                                   AdminOpcode::kVolumeDelete, AdminOpcode::kMapSet,
                                                   AdminOpcode::kFloor,        nvme::kGrantAsk};
        const AdminOpcode opcode = kOpcodes[below(6)];
        rig.term = below(4) != 0 ? rig.term : below(2) != 0 ? below(4) + rig.term - 1 : mix64(++drawn);
        nvme::Command c = rig.admin_command(opcode);
        c.cdw10 = static_cast<std::uint32_t>(below(8) == 0 ? mix64(++drawn) : below(6));
        c.cdw11 = static_cast<std::uint32_t>(below(4));
        c.cdw12 = static_cast<std::uint32_t>(below(100));
        const auto vid = static_cast<nvme::VolumeId>(1 + below(5));
        nvme::VolumeRecord record = make_record(vid, 7, static_cast<nvme::Epoch>(1 + below(40)));
        record.birth_epoch = static_cast<nvme::Epoch>(below(record.epoch + 1));
        record.revision = below(6);
        if (below(10) == 0) record.flags = static_cast<std::uint32_t>(below(16));
        nvme::MapSet map = make_map(static_cast<std::uint32_t>(1 + below(5)), 1 + below(2) % 2,
                                    below(3) == 0 ? kGrantMs : 0);
        if (below(8) == 0) map.slot = 1;
        const bool is_map = opcode == AdminOpcode::kMapSet;
        std::span<std::byte> data = is_map ? std::as_writable_bytes(std::span(&map, 1))
                                           : std::as_writable_bytes(std::span(&record, 1));
        if (below(20) == 0) data = data.first(below(data.size()));
        const Requester from = below(12) == 0 ? Requester{7, false} : kAdmin;
        rig.metadata.fail = below(20) == 0;
        rig.metadata.limit = below(20) == 0 ? rig.metadata.blob.size() : 1 << 20;
        const auto state = rig.engine->firmware_state();
        const auto stored = rig.metadata.blob;
        const std::uint32_t version = rig.engine->map_version();
        const bool granted = rig.engine->granted(rig.now_ns);
        const std::uint64_t term = rig.term;
        const Answer a = rig.admin(c, data, from);
        if (ok(a.status)) {
            ++accepted;
            continue;
        }
        ++refused;
        ASSERT_EQ(rig.engine->firmware_state(), state)
            << "opcode " << static_cast<int>(opcode) << ", " << nvme::status_name(a.status);
        ASSERT_EQ(rig.metadata.blob, stored);
        ASSERT_EQ(rig.engine->map_version(), version);
        ASSERT_EQ(rig.engine->granted(rig.now_ns), granted);
        if (term > 1'000'000) rig.term = 1;
        // The newest that it has seen, or what comes next is refused for its term alone.
        std::memcpy(&rig.term, state.data() + 16, sizeof(rig.term));
    }
    EXPECT_GT(refused, 5'000u);
    EXPECT_GT(accepted, 1'000u);
}

TEST_F(Fencing, AGrantIsCountedFromTheTimeOfItsRequest) {
    const std::uint32_t nonce = rig.ask_grant();
    pass(6 * kMs, 6 * kMs);
    ASSERT_EQ(rig.set_map(make_map(1, 1, kGrantMs), nonce), Status::kSuccess);
    EXPECT_EQ(read(), Status::kSuccess);
    pass(4 * kMs - 1, 4 * kMs - 1);
    EXPECT_EQ(read(), Status::kSuccess);
    pass(1, 1);
    EXPECT_EQ(read(), Status::kNotGranted) << "10 ms after it was asked for, 4 after it came";
}

// A host that is suspended: CLOCK_BOOTTIME has gone on. A virtual machine that was paused: it has not, and
// the wall clock is put right.
TEST_F(Fencing, AGrantEndsByEitherClock) {
    ASSERT_EQ(rig.set_map(make_map(1, 1, kGrantMs)), Status::kSuccess);
    pass(10 * kMs, 0);
    EXPECT_EQ(read(), Status::kNotGranted);
    ASSERT_EQ(rig.set_map(make_map(1, 1, kGrantMs)), Status::kSuccess);
    EXPECT_EQ(read(), Status::kSuccess);
    pass(0, 10 * kMs);
    EXPECT_EQ(read(), Status::kNotGranted);
    pass(0, 0);
    EXPECT_EQ(read(), Status::kNotGranted);
    ASSERT_EQ(rig.set_map(make_map(1, 1, kGrantMs)), Status::kSuccess);
    wall -= 5'000 * kMs;
    pass(0, 0);
    EXPECT_EQ(read(), Status::kNotGranted) << "nothing can be counted on a clock that was put back";
}

TEST_F(Fencing, AnEndedGrantStaysEndedWhenTheWallClockIsPutBack) {
    ASSERT_EQ(rig.set_map(make_map(1, 1, kGrantMs)), Status::kSuccess);
    pass(0, 10 * kMs);
    EXPECT_EQ(read(), Status::kNotGranted);
    wall -= 5 * kMs;
    pass(0, 0);
    EXPECT_EQ(read(), Status::kNotGranted);
}

TEST_F(Fencing, OnlyTheNewestNonceGrants) {
    const std::uint32_t first = rig.ask_grant();
    const std::uint32_t second = rig.ask_grant();
    EXPECT_NE(first, second);
    for (const std::uint32_t wrong : {first, second + 1, 0u})
        EXPECT_EQ(rig.set_map(make_map(1, 1, kGrantMs), wrong), Status::kNotGranted);
    EXPECT_EQ(rig.engine->map_version(), 0u) << "a refused command must not activate a map";
    EXPECT_EQ(rig.set_map(make_map(1, 1, kGrantMs), second), Status::kSuccess);
    pass(6 * kMs, 6 * kMs);
    EXPECT_EQ(rig.set_map(make_map(1, 1, kGrantMs), second), Status::kSuccess) << "the same again";
    pass(4 * kMs, 4 * kMs);
    EXPECT_EQ(read(), Status::kNotGranted) << "a repeated command makes no grant longer";
    EXPECT_EQ(rig.set_map(make_map(1, 1, kGrantMs), second), Status::kNotGranted)
        << "the repeated grant would already have ended";
}

TEST_F(Fencing, ARefusedGrantKeepsThePresentGrant) {
    ASSERT_EQ(rig.set_map(make_map(1, 1, kGrantMs)), Status::kSuccess);
    EXPECT_EQ(rig.set_map(make_map(2, 1, kGrantMs), 0xDEAD), Status::kNotGranted);
    EXPECT_EQ(read(), Status::kSuccess);
    rig.metadata.fail = true;
    EXPECT_EQ(rig.set_map(make_map(2, 1, 1'000)), Status::kInternalError);
    rig.metadata.fail = false;
    pass(10 * kMs, 10 * kMs);
    EXPECT_EQ(read(), Status::kNotGranted) << "the command must not extend the grant";
}

TEST_F(Fencing, ADriveBootsWithoutAGrantAndForgetsItsNonces) {
    const std::uint32_t nonce = rig.ask_grant();
    ASSERT_EQ(rig.set_map(make_map(1, 1, kGrantMs), nonce), Status::kSuccess);
    rig.mount();
    pass(0, 0);
    EXPECT_EQ(read(), Status::kNotGranted);
    EXPECT_EQ(rig.set_map(make_map(1, 1, kGrantMs), nonce), Status::kNotGranted);
    pass(1, 1);
    EXPECT_NE(rig.ask_grant(), nonce);
    EXPECT_EQ(rig.set_map(make_map(1, 1, kGrantMs), nonce), Status::kNotGranted);
    EXPECT_EQ(read(), Status::kNotGranted);
    EXPECT_EQ(rig.set_map(make_map(1, 1, kGrantMs)), Status::kSuccess);
    EXPECT_EQ(read(), Status::kSuccess);
}

TEST_F(Fencing, NonceZeroIsNeverValid) {
    Grant grant;
    EXPECT_FALSE(grant.is_due(0, kGrantMs, {})) << "the grant was not requested";
    EXPECT_FALSE(grant.lasts(0));
    for (std::uint64_t i = 0; i < 100; ++i) EXPECT_NE(Grant().ask({i, i}), 0u);
}

TEST_F(Fencing, SumsOfTimesDoNotOverflow) {
    Grant grant;
    const GrantTime late{~0ull - 5, ~0ull - 5};
    const std::uint32_t nonce = grant.ask(late);
    ASSERT_TRUE(grant.is_due(nonce, ~0u, late));
    grant.begin(~0u);
    grant.observe(late);
    EXPECT_TRUE(grant.lasts(late.boot_ns));
    grant.observe({late.boot_ns + (1ull << 62), late.wall_ns});
    EXPECT_FALSE(grant.lasts(~0ull - 1));
}

}  // namespace
