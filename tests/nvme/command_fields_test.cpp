// The GNStor fields of a command: what goes in comes out, at every limit, and no two fields share a bit.
// GN_SEED replays a failure: it is handed to RapidCheck as its seed.
#include <gnstor/base/hash.hpp>
#include <gnstor/nvme/command.hpp>
#include <gnstor/nvme/fencing.hpp>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace {

namespace n = gnstor::nvme;

// RapidCheck reads its seed from RC_PARAMS, once, before the first property.
const bool kSeeded = [] {
    const char* seed = std::getenv("GN_SEED");
    const std::string params =
        std::string("max_success=2000") + (seed != nullptr ? std::string(" seed=") + seed : "");
    ::setenv("RC_PARAMS", params.c_str(), 0);
    return true;
}();

/// Values of a field that break things: ends, powers of two and their neighbours; and any.
template <class T>
rc::Gen<T> limits(std::uint64_t low, std::uint64_t high) {
    return rc::gen::map(
        rc::gen::pair(rc::gen::inRange(0, 6), rc::gen::arbitrary<std::uint64_t>()),
        [=](const std::pair<int, std::uint64_t>& p) {
            const std::uint64_t span = high - low;
            const std::uint64_t any = span == ~0ull ? p.second : p.second % (span + 1);
            const std::uint64_t power = std::min<std::uint64_t>(span, 1ull << (p.second % 64));
            const std::array<std::uint64_t, 6> pick = {0, span, power, power - (power > 0 ? 1 : 0), any, any};
            return static_cast<T>(low + pick[static_cast<std::size_t>(p.first)]);
        });
}

n::IoFields any_fields() {
    n::IoFields f;
    f.volume = *limits<n::VolumeId>(0, 0xFFFF);
    f.client = *limits<n::ClientId>(0, 0xFFFF);
    f.block = *limits<n::BlockAddress>(0, 0xFFFFFFFF);
    f.blocks = *limits<std::uint32_t>(1, 65536);
    f.epoch = *limits<n::Epoch>(0, 0xFFFFFFFF);
    f.map_version = *limits<n::MapVersion>(0, 0xFFFFFFFF);
    f.first_sector = *limits<std::uint8_t>(0, 255);
    f.sectors = *limits<std::uint8_t>(0, 255);
    f.sequence = *limits<std::uint64_t>(0, ~0ull);
    f.fua = *rc::gen::arbitrary<bool>();
    return f;
}

constexpr std::array kOpcodes = {n::IoOpcode::kFlush, n::IoOpcode::kWrite, n::IoOpcode::kRead,
                                 n::IoOpcode::kWriteZeroes};

RC_GTEST_PROP(CommandFields, RoundTripThroughTheWireForEveryOpcode, ()) {
    const n::IoFields f = any_fields();
    const n::IoOpcode op = *rc::gen::elementOf(kOpcodes);
    const n::Command c = n::encode_io(op, f);
    std::array<std::byte, 64> wire;
    std::memcpy(wire.data(), &c, sizeof c);
    n::Command back;
    std::memcpy(&back, wire.data(), sizeof back);
    RC_ASSERT(n::decode_io(back) == f);
    RC_ASSERT(back.opcode == static_cast<std::uint8_t>(op));
    RC_ASSERT(back.flags == n::kFlagsSgl);
    RC_ASSERT(back.namespace_id == 1u);
    RC_ASSERT(back.metadata == 0u);
}

RC_GTEST_PROP(CommandFields, TrimsRoundTripAndCountTheirRanges, ()) {
    n::IoFields f = any_fields();
    const auto ranges = *rc::gen::inRange<std::uint32_t>(1, 257);
    const n::Command c = n::encode_trim(f, ranges);
    const n::IoFields back = n::decode_trim(c);
    RC_ASSERT(back.volume == f.volume);
    RC_ASSERT(back.client == f.client);
    RC_ASSERT(back.epoch == f.epoch);
    RC_ASSERT(back.map_version == f.map_version);
    RC_ASSERT(back.sequence == f.sequence);
    RC_ASSERT((c.cdw10 & 0xFF) + 1 == ranges);
    RC_ASSERT((c.cdw11 & 4u) != 0u);
}

RC_GTEST_PROP(CommandFields, SglDescriptorsRoundTrip, ()) {
    const auto address = *limits<std::uint64_t>(0, ~0ull);
    const auto key = *limits<std::uint32_t>(0, 0xFFFFFFFF);
    const auto keyed_length = *limits<std::uint32_t>(0, 0xFFFFFF);
    const n::SglDescriptor k = n::SglDescriptor::keyed(address, keyed_length, key);
    RC_ASSERT(k.is_keyed());
    RC_ASSERT(k.address == address && k.length() == keyed_length && k.key() == key);
    const auto length = *limits<std::uint32_t>(0, 0xFFFFFFFF);
    for (const std::uint8_t type : {n::kSglDataBlockAddress, n::kSglDataBlockOffset}) {
        const n::SglDescriptor u = n::SglDescriptor::unkeyed(type, address, length);
        RC_ASSERT(!u.is_keyed());
        RC_ASSERT(u.address == address && u.length() == length && u.type == type);
        RC_ASSERT(u.length_key[4] == 0 && u.length_key[5] == 0 && u.length_key[6] == 0);
    }
}

/// One bit of one field, and the bit of the 64 bytes that docs/design.md, "The command", gives it.
struct FieldBit {
    const char* field;
    std::function<void(n::IoFields&)> flip;
    unsigned wire_bit;
};

std::vector<FieldBit> documented_bits() {
    std::vector<FieldBit> bits;
    const auto add = [&](const char* name, unsigned count, unsigned first_bit, auto member) {
        for (unsigned i = 0; i < count; ++i) {
            bits.push_back({name,
                            [=](n::IoFields& f) {
                                f.*member = static_cast<std::remove_reference_t<decltype(f.*member)>>(
                                    f.*member ^ (1ull << i));
                            },
                            first_bit + i});
        }
    };
    add("CDW2 epoch", 32, 8 * 8, &n::IoFields::epoch);
    add("CDW3 map version", 32, 12 * 8, &n::IoFields::map_version);
    add("SLBA 31:0 VBA", 32, 40 * 8, &n::IoFields::block);
    add("SLBA 47:32 client", 16, 44 * 8, &n::IoFields::client);
    add("SLBA 63:48 VID", 16, 46 * 8, &n::IoFields::volume);
    add("CDW13 7:0 first sector", 8, 52 * 8, &n::IoFields::first_sector);
    add("CDW13 15:8 sectors", 8, 53 * 8, &n::IoFields::sectors);
    add("CDW14-15 sequence", 64, 56 * 8, &n::IoFields::sequence);
    bits.push_back({"CDW12 30 FUA", [](n::IoFields& f) { f.fua = !f.fua; }, 48 * 8 + 30});
    for (unsigned i = 0; i < 16; ++i) {
        bits.push_back({"CDW12 15:0 NLB",
                        [=](n::IoFields& f) { f.blocks = ((f.blocks - 1) ^ (1u << i)) + 1; }, 48 * 8 + i});
    }
    return bits;
}

TEST(CommandFields, FlippingABitOfAFieldFlipsExactlyItsDocumentedBitOfTheSixtyFourBytes) {
    const std::vector<FieldBit> bits = documented_bits();
    gnstor::SplitMix64 random(20240601);
    int flips = 0;
    for (int round = 0; round < 50; ++round) {
        n::IoFields base;
        base.volume = static_cast<n::VolumeId>(random.next());
        base.client = static_cast<n::ClientId>(random.next());
        base.block = static_cast<n::BlockAddress>(random.next());
        base.blocks = static_cast<std::uint32_t>(random.below(65536)) + 1;
        base.epoch = static_cast<n::Epoch>(random.next());
        base.map_version = static_cast<n::MapVersion>(random.next());
        base.first_sector = static_cast<std::uint8_t>(random.next());
        base.sectors = static_cast<std::uint8_t>(random.next());
        base.sequence = random.next();
        base.fua = (random.next() & 1) != 0;
        for (const FieldBit& bit : bits) {
            n::IoFields changed = base;
            bit.flip(changed);
            const n::Command a = n::encode_io(n::IoOpcode::kWrite, base);
            const n::Command b = n::encode_io(n::IoOpcode::kWrite, changed);
            std::array<std::uint8_t, 64> x;
            std::array<std::uint8_t, 64> y;
            std::memcpy(x.data(), &a, 64);
            std::memcpy(y.data(), &b, 64);
            for (unsigned i = 0; i < 64; ++i) {
                const unsigned expected = i == bit.wire_bit / 8 ? 1u << (bit.wire_bit % 8) : 0u;
                ASSERT_EQ(static_cast<unsigned>(x[i] ^ y[i]), expected) << bit.field << ", byte " << i;
            }
            ASSERT_FALSE(n::decode_io(b) == base) << bit.field << " is lost in decoding";
            ++flips;
        }
    }
    std::vector<unsigned> wire;
    for (const FieldBit& bit : bits) wire.push_back(bit.wire_bit);
    std::sort(wire.begin(), wire.end());
    EXPECT_EQ(std::adjacent_find(wire.begin(), wire.end()), wire.end()) << "two fields share a bit";
    std::printf("command fields: %zu field bits, %d flips (floor 10000)\n", bits.size(), flips);
    std::printf("GN_COUNT nvme_field_bit_flips=%llu\n", static_cast<unsigned long long>(flips));
    EXPECT_GE(flips, 10000);
}

/// docs/array.md, rule 1: the drive's own term and a limited distance above it.
TEST(Terms, ArePlausibleFromTheNewestSeenUpToTheLeap) {
    const auto plausible = [](std::uint64_t term) { return n::is_plausible_term(term, 100); };
    EXPECT_FALSE(plausible(99));
    EXPECT_TRUE(plausible(100));
    EXPECT_TRUE(plausible(101));
    EXPECT_TRUE(plausible(100 + n::kTermLeapMost));
    EXPECT_FALSE(plausible(100 + n::kTermLeapMost + 1));
    EXPECT_FALSE(n::is_plausible_term(n::kLastTerm, n::kLastTerm));
}

}  // namespace
