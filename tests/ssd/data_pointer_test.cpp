// Malformed I/O commands get their proper status before anything of them is done.
#include "ssd/drive/data_pointer.hpp"
#include "ssd/drive/admin.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace gnstor::ssd {
namespace {

using nvme::Command;
using nvme::IoFields;
using nvme::IoOpcode;
using nvme::SglDescriptor;
using nvme::Status;

Command io(IoOpcode op, std::uint32_t blocks, const void* at, std::uint32_t bytes) {
    IoFields f;
    f.volume = 1;
    f.blocks = blocks;
    Command c = nvme::encode_io(op, f);
    c.data = SglDescriptor::unkeyed(nvme::kSglDataBlockAddress, reinterpret_cast<std::uint64_t>(at), bytes);
    return c;
}

Status check(const Command& c) {
    std::span<std::byte> data;
    return check_io(c, data);
}

class DataPointer : public ::testing::Test {
  protected:
    std::vector<std::byte> buffer = std::vector<std::byte>(1 << 20);
};

TEST_F(DataPointer, AGoodCommandGetsItsMemory) {
    std::span<std::byte> data;
    ASSERT_EQ(check_io(io(IoOpcode::kRead, 3, buffer.data(), 3 * 4096), data), Status::kSuccess);
    EXPECT_EQ(data.data(), buffer.data());
    EXPECT_EQ(data.size(), 3u * 4096);
    ASSERT_EQ(check_io(io(IoOpcode::kWrite, 256, buffer.data(), 1 << 20), data), Status::kSuccess);
    ASSERT_EQ(check_io(io(IoOpcode::kFlush, 1, nullptr, 0), data), Status::kSuccess);
    EXPECT_TRUE(data.empty());
    ASSERT_EQ(check_io(io(IoOpcode::kWriteZeroes, 65536, nullptr, 0), data), Status::kSuccess);
}

TEST_F(DataPointer, WrongFlagsNamespacesAndOpcodesAreRefused) {
    Command c = io(IoOpcode::kRead, 1, buffer.data(), 4096);
    for (const int flags : {0x00, 0x80, 0xC0, 0x41, 0x42, 0x43}) {
        c.flags = static_cast<std::uint8_t>(flags);
        EXPECT_EQ(check(c), Status::kInvalidField) << flags;
    }
    c = io(IoOpcode::kRead, 1, buffer.data(), 4096);
    for (const std::uint32_t nsid : {0u, 2u, 0xFFFFFFFFu}) {
        c.namespace_id = nsid;
        EXPECT_EQ(check(c), Status::kInvalidNamespace) << nsid;
    }
    int unknown = 0;
    for (int op = 0; op < 256; ++op) {
        c = io(static_cast<IoOpcode>(op), 1, buffer.data(), 4096);
        if (check(c) == Status::kInvalidOpcode) ++unknown;
    }
    EXPECT_EQ(unknown, 251) << "five opcodes are known";
}

TEST_F(DataPointer, TheSglMustBeOneDataBlockOfTheRightLength) {
    for (int type = 0; type < 256; ++type) {
        Command c = io(IoOpcode::kRead, 1, buffer.data(), 4096);
        c.data.type = static_cast<std::uint8_t>(type);
        EXPECT_EQ(check(c), type == 0 ? Status::kSuccess : Status::kSglTypeInvalid) << type;
    }
    for (const std::uint32_t bytes : {0u, 1u, 4095u, 4097u, 8192u, 0xFFFFFFFFu}) {
        EXPECT_EQ(check(io(IoOpcode::kRead, 1, buffer.data(), bytes)), Status::kDataSglLengthInvalid)
            << bytes;
        EXPECT_EQ(check(io(IoOpcode::kWrite, 1, buffer.data(), bytes)), Status::kDataSglLengthInvalid)
            << bytes;
    }
    EXPECT_EQ(check(io(IoOpcode::kRead, 1, nullptr, 4096)), Status::kDataTransferError);
    EXPECT_EQ(check(io(IoOpcode::kRead, 1, reinterpret_cast<void*>(~0ull - 100), 4096)),
              Status::kDataTransferError);
}

TEST_F(DataPointer, TransfersAboveMdtsAreRefused) {
    EXPECT_EQ(check(io(IoOpcode::kRead, 257, buffer.data(), 257 * 4096)), Status::kInvalidField);
    EXPECT_EQ(check(io(IoOpcode::kWrite, 65536, buffer.data(), 65536u * 4096 - 1)), Status::kInvalidField);
}

TEST_F(DataPointer, SectorReadsStayInsideTheirBlock) {
    int good = 0;
    for (std::uint32_t first = 0; first < 256; ++first) {
        for (std::uint32_t count = 0; count < 256; ++count) {
            IoFields f;
            f.first_sector = static_cast<std::uint8_t>(first);
            f.sectors = static_cast<std::uint8_t>(count);
            Command c = nvme::encode_io(IoOpcode::kRead, f);
            c.data = SglDescriptor::unkeyed(0, reinterpret_cast<std::uint64_t>(buffer.data()),
                                            count == 0 ? 4096 : count * 512);
            const bool legal = count == 0 ? first == 0 : first + count <= 8;
            ASSERT_EQ(check(c), legal ? Status::kSuccess : Status::kInvalidField) << first << " " << count;
            good += legal ? 1 : 0;
        }
    }
    EXPECT_EQ(good, 37);
    IoFields f;
    f.blocks = 2;
    f.sectors = 1;
    Command c = nvme::encode_io(IoOpcode::kRead, f);
    c.data = SglDescriptor::unkeyed(0, reinterpret_cast<std::uint64_t>(buffer.data()), 512);
    EXPECT_EQ(check(c), Status::kInvalidField) << "sectors of one block only";
}

TEST_F(DataPointer, TrimsNeedTheirRangeListAndMaySendALongerBuffer) {
    Command c = nvme::encode_trim({}, 3);
    std::span<std::byte> data;
    for (const std::uint32_t bytes : {0u, 16u, 47u}) {
        c.data = SglDescriptor::unkeyed(0, reinterpret_cast<std::uint64_t>(buffer.data()), bytes);
        EXPECT_EQ(check_io(c, data), Status::kDataSglLengthInvalid);
    }
    for (const std::uint32_t bytes : {48u, 4096u}) {
        c.data = SglDescriptor::unkeyed(0, reinterpret_cast<std::uint64_t>(buffer.data()), bytes);
        ASSERT_EQ(check_io(c, data), Status::kSuccess);
        EXPECT_EQ(data.size(), 48u);
    }
}

}  // namespace
}  // namespace gnstor::ssd
