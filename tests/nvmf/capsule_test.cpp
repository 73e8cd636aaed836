// capsule_test.cpp: what parse_capsule accepts, and that it refuses everything else with the right status
// before bytes move.
#include "nvmf/protocol/capsule.hpp"

#include <gnstor/base/hash.hpp>
#include <gnstor/nvme/fabrics.hpp>
#include <gnstor/nvme/vendor.hpp>

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <vector>

namespace gnstor::nvmf {
namespace {

using nvme::Status;

struct Message {
    std::vector<std::byte> bytes;
    std::vector<rdma::Segment> pieces;

    explicit Message(const nvme::Command& command, std::size_t data = 0) : bytes(sizeof command + data) {
        std::memcpy(bytes.data(), &command, sizeof command);
        for (std::size_t i = 0; i < data; ++i) bytes[sizeof command + i] = static_cast<std::byte>(i * 7);
        split({});
    }
    void split(const std::vector<std::uint32_t>& lengths) {
        pieces.clear();
        std::uint32_t at = 0;
        for (const std::uint32_t n : lengths) {
            pieces.push_back({bytes.data() + at, n});
            at += n;
        }
        pieces.push_back({bytes.data() + at, static_cast<std::uint32_t>(bytes.size()) - at});
    }
    [[nodiscard]] MessageBytes view() const { return MessageBytes(pieces); }
};

nvme::Command write_command(std::uint32_t blocks, nvme::SglDescriptor data) {
    nvme::Command c =
        nvme::encode_io(nvme::IoOpcode::kWrite, {.volume = 3, .client = 4, .block = 5, .blocks = blocks});
    c.data = data;
    return c;
}
nvme::SglDescriptor in_capsule(std::uint64_t offset, std::uint32_t bytes) {
    return nvme::SglDescriptor::unkeyed(nvme::kSglDataBlockOffset, offset, bytes);
}

TEST(Capsule, AWriteOfOneBlockCarriesItsDataHoweverItsSegmentsAreSplit) {
    Message m(write_command(1, in_capsule(0, 4096)), 4096);
    for (const auto& cut :
         std::vector<std::vector<std::uint32_t>>{{}, {64}, {1}, {63}, {65}, {10, 54}, {64, 2048}}) {
        m.split(cut);
        const auto p = parse_capsule(m.view(), QueueKind::kIo);
        ASSERT_EQ(p.verdict, Verdict::kGood);
        EXPECT_EQ(p.capsule.payload, Payload::kInCapsule);
        EXPECT_EQ(p.capsule.direction, Direction::kToDrive);
        EXPECT_EQ(p.capsule.bytes, 4096u);
        EXPECT_EQ(p.capsule.offset, 64u);
        EXPECT_EQ(std::memcmp(&p.capsule.command, m.bytes.data(), 64), 0);
        std::vector<std::byte> copy(4096);
        m.view().copy(p.capsule.offset, p.capsule.bytes, copy.data());
        EXPECT_EQ(std::memcmp(copy.data(), m.bytes.data() + 64, 4096), 0);
    }
}

TEST(Capsule, DataIsPassedByReferenceExactlyWhenItIsContiguous) {
    Message m(write_command(1, in_capsule(0, 4096)), 4096);
    m.split({64});
    EXPECT_EQ(m.view().contiguous(64, 4096), m.bytes.data() + 64);
    m.split({64, 4000});
    EXPECT_EQ(m.view().contiguous(64, 4096), nullptr);
    EXPECT_EQ(m.view().contiguous(64, 4000), m.bytes.data() + 64);
    m.split({10});
    EXPECT_EQ(m.view().contiguous(64, 4096), m.bytes.data() + 64);
    EXPECT_EQ(m.view().contiguous(64 + 4096, 1), nullptr);
}

TEST(Capsule, InCapsuleDataMustLieWithinTheMessage) {
    const auto status = [](std::uint64_t offset, std::uint32_t length, std::size_t carried) {
        const Message m(write_command(1, in_capsule(offset, length)), carried);
        return parse_capsule(m.view(), QueueKind::kIo).status;
    };
    EXPECT_EQ(status(0, 4096, 4096), Status::kSuccess);
    EXPECT_EQ(status(0, 4096, 4095), Status::kDataSglLengthInvalid);
    EXPECT_EQ(status(1, 4096, 4096), Status::kDataSglLengthInvalid);
    EXPECT_EQ(status(4097, 4096, 4096), Status::kSglOffsetInvalid);
    EXPECT_EQ(status(~0ull, 4096, 4096), Status::kSglOffsetInvalid);
    EXPECT_EQ(status(~0ull - 4095, 4096, 4096), Status::kSglOffsetInvalid);
    EXPECT_EQ(status(0, 4096, 0), Status::kDataSglLengthInvalid);
}

TEST(Capsule, TheTransferLengthComesFromTheOpcodeNotFromTheSgl) {
    const auto of = [](const nvme::Command& c, QueueKind kind) {
        return parse_capsule(Message(c).view(), kind);
    };
    for (const std::uint32_t length : {0u, 1u, 4095u, 4097u, 8192u, 0xFFFFFFu}) {
        const auto p = of(write_command(1, nvme::SglDescriptor::keyed(0x1000, length, 9)), QueueKind::kIo);
        EXPECT_EQ(p.verdict, Verdict::kRefused) << length;
        EXPECT_EQ(p.status, Status::kDataSglLengthInvalid) << length;
    }
    const auto good = of(write_command(16, nvme::SglDescriptor::keyed(0x1000, 65536, 9)), QueueKind::kIo);
    EXPECT_EQ(good.verdict, Verdict::kGood);
    EXPECT_EQ(good.capsule.payload, Payload::kKeyed);
    EXPECT_EQ(good.capsule.address, 0x1000u);
    EXPECT_EQ(good.capsule.key, 9u);
    EXPECT_EQ(good.capsule.invalidate_key, 0u);
    // 256 blocks are MDTS, 257 are not.
    EXPECT_EQ(of(write_command(256, nvme::SglDescriptor::keyed(0, 1u << 20, 9)), QueueKind::kIo).verdict,
              Verdict::kGood);
    EXPECT_EQ(of(write_command(257, nvme::SglDescriptor::keyed(0, 257 * 4096, 9)), QueueKind::kIo).status,
              Status::kInvalidField);
    EXPECT_EQ(of(write_command(65536, nvme::SglDescriptor::keyed(0, 0, 9)), QueueKind::kIo).status,
              Status::kInvalidField);
}

TEST(Capsule, AKeyedRangeMayNotWrapTheAddressSpace) {
    const Message m(write_command(1, nvme::SglDescriptor::keyed(~0ull - 10, 4096, 9)));
    EXPECT_EQ(parse_capsule(m.view(), QueueKind::kIo).status, Status::kDataSglLengthInvalid);
}

TEST(Capsule, SectorsOfABlockMoveOnlyThemselves) {
    const auto read = [](std::uint8_t first, std::uint8_t sectors, std::uint32_t blocks,
                         std::uint32_t length) {
        nvme::Command c =
            nvme::encode_io(nvme::IoOpcode::kRead,
                            {.volume = 3, .blocks = blocks, .first_sector = first, .sectors = sectors});
        c.data = nvme::SglDescriptor::keyed(0x2000, length, 1);
        return parse_capsule(Message(c).view(), QueueKind::kIo);
    };
    for (std::uint8_t first = 0; first < 8; ++first)
        for (std::uint8_t n = 1; n + first <= 8; ++n) {
            EXPECT_EQ(read(first, n, 1, n * 512u).verdict, Verdict::kGood);
            EXPECT_EQ(read(first, n, 1, n * 512u + 1).status, Status::kDataSglLengthInvalid);
        }
    EXPECT_EQ(read(1, 8, 1, 4096).status, Status::kInvalidField);
    EXPECT_EQ(read(255, 255, 1, 255 * 512).status, Status::kInvalidField);
    EXPECT_EQ(read(0, 1, 2, 512).status, Status::kInvalidField);
}

TEST(Capsule, AnOrdinaryHostsHintsAreNoSectors) {
    constexpr std::uint32_t kPrefetch = 7;  // DSM of a read, as Linux has it when it reads ahead
    nvme::Command c = nvme::encode_io(nvme::IoOpcode::kRead, {.blocks = 2});
    c.cdw13 = kPrefetch;
    c.data = nvme::SglDescriptor::keyed(0x2000, 8192, 1);
    const auto plain = parse_capsule(Message(c).view(), QueueKind::kIo, ssd::Dialect::kPlain);
    EXPECT_EQ(plain.verdict, Verdict::kGood);
    EXPECT_EQ(plain.capsule.bytes, 8192u);
    c.cdw13 = 1u << 8;  // a byte that says "one sector" to a drive
    EXPECT_EQ(parse_capsule(Message(c).view(), QueueKind::kIo, ssd::Dialect::kPlain).capsule.bytes, 8192u);
    EXPECT_EQ(parse_capsule(Message(c).view(), QueueKind::kIo).status, Status::kInvalidField);
}

TEST(Capsule, AReadNeverLandsInTheCapsule) {
    nvme::Command c = nvme::encode_io(nvme::IoOpcode::kRead, {.volume = 3});
    c.data = in_capsule(0, 4096);
    EXPECT_EQ(parse_capsule(Message(c, 4096).view(), QueueKind::kIo).status, Status::kSglTypeInvalid);
}

TEST(Capsule, OnlyTheSglTypesOfTheTransportAreTaken) {
    std::uint32_t taken = 0;
    for (std::uint32_t type = 0; type < 256; ++type) {
        nvme::SglDescriptor sgl = nvme::SglDescriptor::keyed(0, 4096, 7);
        sgl.type = static_cast<std::uint8_t>(type);
        if (type == nvme::kSglDataBlockOffset) sgl = in_capsule(0, 4096);
        if (!sgl.is_keyed() && type != nvme::kSglDataBlockOffset)
            sgl = nvme::SglDescriptor::unkeyed(sgl.type, 0, 4096);
        const auto p = parse_capsule(Message(write_command(1, sgl), 4096).view(), QueueKind::kIo);
        if (p.verdict == Verdict::kGood) {
            ++taken;
            EXPECT_EQ(p.capsule.invalidate_key, type == nvme::kSglKeyedInvalidate ? 7u : 0u);
        } else {
            EXPECT_EQ(p.status, Status::kSglTypeInvalid) << type;
        }
    }
    EXPECT_EQ(taken, 3u);
}

TEST(Capsule, OnlySglCommandsThatAreNotFusedAreTaken) {
    for (std::uint32_t flags = 0; flags < 256; ++flags) {
        nvme::Command c = write_command(1, nvme::SglDescriptor::keyed(0, 4096, 7));
        c.flags = static_cast<std::uint8_t>(flags);
        const bool good = (flags & 0xC3u) == 0x40u;
        EXPECT_EQ(parse_capsule(Message(c).view(), QueueKind::kIo).verdict,
                  good ? Verdict::kGood : Verdict::kRefused)
            << flags;
    }
}

TEST(Capsule, AnInvalidCapsuleFailsTheConnection) {
    nvme::Command c = write_command(1, in_capsule(0, 4096));
    Message m(c, 4096);
    for (const std::size_t n : {0u, 1u, 63u}) {
        m.bytes.resize(n);
        m.split({});
        EXPECT_EQ(parse_capsule(m.view(), QueueKind::kIo).verdict, Verdict::kBroken);
    }
    EXPECT_EQ(parse_capsule(Message(c, 4097).view(), QueueKind::kIo).verdict, Verdict::kBroken);
}

TEST(Capsule, AdminCommandsTransferTheirSpecifiedLength) {
    const auto admin = [](nvme::AdminOpcode opcode, std::uint32_t length, std::uint32_t cdw10 = 0,
                          std::uint32_t cdw11 = 0) {
        nvme::Command c{};
        c.opcode = static_cast<std::uint8_t>(opcode);
        c.flags = nvme::kFlagsSgl;
        c.cdw10 = cdw10;
        c.cdw11 = cdw11;
        c.data = nvme::SglDescriptor::keyed(0x5000, length, 3);
        return parse_capsule(Message(c).view(), QueueKind::kAdmin);
    };
    using Op = nvme::AdminOpcode;
    EXPECT_EQ(admin(Op::kIdentify, 4096).capsule.direction, Direction::kToHost);
    EXPECT_EQ(admin(Op::kIdentify, 4095).status, Status::kDataSglLengthInvalid);
    EXPECT_EQ(admin(Op::kGetLogPage, 512, 127u << 16).verdict, Verdict::kGood);
    EXPECT_EQ(admin(Op::kGetLogPage, 512, 0xFFFFu << 16, 0xFFFF).status, Status::kInvalidField);
    EXPECT_EQ(admin(Op::kSetFeatures, 0).capsule.direction, Direction::kNone);
    EXPECT_EQ(admin(Op::kKeepAlive, 0).capsule.direction, Direction::kNone);
    EXPECT_EQ(admin(Op::kVolumeAdd, sizeof(nvme::VolumeRecord)).capsule.direction, Direction::kToDrive);
    EXPECT_EQ(admin(Op::kVolumeAdd, 383).status, Status::kDataSglLengthInvalid);
    EXPECT_EQ(admin(Op::kVolumeDelete, 0).verdict, Verdict::kGood);
    EXPECT_EQ(admin(Op::kVolumeList, 4096, 0, 4096).capsule.direction, Direction::kToHost);
    EXPECT_EQ(admin(Op::kVolumeList, 4096, 0, 8192).status, Status::kDataSglLengthInvalid);
    EXPECT_EQ(admin(Op::kVolumeList, 0, 0, 0).status, Status::kInvalidField);
    EXPECT_EQ(admin(Op::kMapGet, sizeof(nvme::MapSet), 0, 0).capsule.direction, Direction::kToHost);
    EXPECT_EQ(admin(Op::kMapGet, sizeof(nvme::MapSet) - 4, 0, 0).status, Status::kDataSglLengthInvalid);
    EXPECT_EQ(admin(Op::kMapSet, sizeof(nvme::MapSet)).capsule.bytes, sizeof(nvme::MapSet));
    EXPECT_EQ(admin(Op::kFabrics, 1024).verdict, Verdict::kGood);  // Property Set
    // An opcode that nobody knows moves in the direction of its low bits; both ways at once it cannot.
    EXPECT_EQ(admin(static_cast<Op>(0xF1), 100).capsule.direction, Direction::kToDrive);
    EXPECT_EQ(admin(static_cast<Op>(0xF2), 100).capsule.direction, Direction::kToHost);
    EXPECT_EQ(admin(static_cast<Op>(0xF3), 100).status, Status::kInvalidOpcode);
}

TEST(Capsule, ARangeListMayComeInALargerBuffer) {
    const auto trim = [](std::uint32_t ranges, std::uint32_t length) {
        nvme::Command c = nvme::encode_trim({.volume = 3}, ranges);
        c.data = nvme::SglDescriptor::keyed(0x1000, length, 9);
        return parse_capsule(Message(c).view(), QueueKind::kIo);
    };
    EXPECT_EQ(trim(2, 31).status, Status::kDataSglLengthInvalid);
    EXPECT_EQ(trim(2, 32).capsule.bytes, 32u);
    EXPECT_EQ(trim(2, 4096).capsule.bytes, 32u) << "no more moves than the command needs";
    EXPECT_EQ(trim(256, 4096).verdict, Verdict::kGood);
}

TEST(Capsule, UnknownIoOpcodesAreRefused) {
    std::uint32_t good = 0;
    for (std::uint32_t opcode = 0; opcode < 0x7F; ++opcode) {
        nvme::Command c = write_command(1, nvme::SglDescriptor::keyed(0, 4096, 7));
        c.opcode = static_cast<std::uint8_t>(opcode);
        c.cdw10 = 0;
        if (opcode == 9) c.data = nvme::SglDescriptor::keyed(0, 16, 7);
        const auto p = parse_capsule(Message(c).view(), QueueKind::kIo);
        good += p.verdict == Verdict::kGood ? 1 : 0;
        if (p.verdict != Verdict::kGood) {
            EXPECT_EQ(p.status, Status::kInvalidOpcode) << opcode;
        }
    }
    EXPECT_EQ(good, 5u);
}

TEST(Capsule, ForArbitraryBytesTheDataLiesWithinItsBounds) {
    const char* given = std::getenv("GN_SEED");
    const std::uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 0) : 20261120;
    SplitMix64 random(seed);
    std::vector<std::byte> bytes(kCapsuleBytesMax + 64);
    std::uint64_t good = 0;
    constexpr std::uint64_t kCases = 400'000;
    for (std::uint64_t i = 0; i < kCases; ++i) {
        for (std::size_t at = 0; at < kCommandBytes; at += 8) {
            const std::uint64_t word = random.next();
            std::memcpy(bytes.data() + at, &word, 8);
        }
        auto* command = reinterpret_cast<nvme::Command*>(bytes.data());
        // Half of the cases are nearly right, or nothing would get past the first check.
        if (random.below(4) != 0) {
            command->flags = nvme::kFlagsSgl;
            command->opcode =
                static_cast<std::uint8_t>(random.below(4) == 0 ? random.next() : random.below(10));
            command->cdw12 &= 0x1Fu;
            command->cdw13 = static_cast<std::uint32_t>(random.below(9) << 8);
            const std::uint8_t types[] = {0x00, 0x01, 0x40, 0x4F, 0x50};
            command->data.type = types[random.below(5)];
            command->data.address = random.below(3) == 0 ? random.next() : random.below(70);
            const auto need = data_need(random.below(2) != 0 ? QueueKind::kIo : QueueKind::kAdmin, *command);
            const auto length =
                static_cast<std::uint32_t>(random.below(3) == 0 ? random.below(1 << 24) : need.bytes);
            const auto key = static_cast<std::uint32_t>(random.next());
            const std::uint8_t type = command->data.type;
            command->data = type < 0x40 ? nvme::SglDescriptor::unkeyed(type, command->data.address, length)
                                        : nvme::SglDescriptor::keyed(command->data.address, length, key);
            command->data.type = type;
        }
        const auto total =
            static_cast<std::uint32_t>(random.below(3) == 0 ? random.below(bytes.size()) : kCapsuleBytesMax);
        const auto cut = static_cast<std::uint32_t>(random.below(total + 1));
        const rdma::Segment pieces[] = {{bytes.data(), cut}, {bytes.data() + cut, total - cut}};
        const QueueKind kind = random.below(2) != 0 ? QueueKind::kIo : QueueKind::kAdmin;
        const auto p = parse_capsule(MessageBytes(pieces), kind);
        const bool readable = total >= kCommandBytes && total <= kCapsuleBytesMax;
        ASSERT_EQ(p.verdict == Verdict::kBroken, !readable) << "GN_SEED=" << seed;
        ASSERT_TRUE(p.verdict != Verdict::kRefused || !nvme::ok(p.status)) << "GN_SEED=" << seed;
        if (p.verdict != Verdict::kGood) continue;
        ++good;
        ASSERT_LE(p.capsule.bytes, kTransferBytesMax) << "GN_SEED=" << seed;
        if (p.capsule.payload == Payload::kInCapsule) {
            ASSERT_LE(std::uint64_t{p.capsule.offset} + p.capsule.bytes, total) << "GN_SEED=" << seed;
            ASSERT_GE(p.capsule.offset, kCommandBytes) << "GN_SEED=" << seed;
        }
        ASSERT_EQ(p.capsule.payload == Payload::kNone, p.capsule.direction == Direction::kNone)
            << "GN_SEED=" << seed;
    }
    std::printf("GN_COUNT nvmf_capsules_parsed=%llu\nGN_COUNT nvmf_capsules_good=%llu\nGN_SEED=%llu\n",
                static_cast<unsigned long long>(kCases), static_cast<unsigned long long>(good),
                static_cast<unsigned long long>(seed));
    EXPECT_GT(good, 20'000u);
}

}  // namespace
}  // namespace gnstor::nvmf
