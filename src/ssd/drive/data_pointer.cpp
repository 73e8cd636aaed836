#include "ssd/drive/data_pointer.hpp"

#include "ssd/drive/admin.hpp"

namespace gnstor::ssd {

using nvme::Command;
using nvme::IoOpcode;
using nvme::Status;

namespace {

constexpr std::uint8_t kFlagsMeaningful = 0xC3;  // PSDT 7:6, FUSE 1:0

}  // namespace

Status check_flags(const Command& command) {
    return (command.flags & kFlagsMeaningful) == nvme::kFlagsSgl ? Status::kSuccess : Status::kInvalidField;
}

Status data_span(const Command& command, std::uint32_t bytes, Length length, std::span<std::byte>& data) {
    const nvme::SglDescriptor& sgl = command.data;
    if (sgl.type != nvme::kSglDataBlockAddress) return Status::kSglTypeInvalid;
    const std::uint32_t has = sgl.length();
    if (length == Length::kExact ? has != bytes : has < bytes) return Status::kDataSglLengthInvalid;
    if (has > kMdtsBlocks * nvme::kBlockBytes) return Status::kInvalidField;
    if (has > 0 && (sgl.address == 0 || sgl.address + has < sgl.address)) return Status::kDataTransferError;
    data = {reinterpret_cast<std::byte*>(sgl.address), has};
    return Status::kSuccess;
}

Status check_io(const Command& command, std::span<std::byte>& data) {
    if (const Status s = check_flags(command); !nvme::ok(s)) return s;
    if (command.namespace_id != kFirstNamespace) return Status::kInvalidNamespace;
    data = {};
    const nvme::IoFields f = nvme::decode_io(command);
    switch (static_cast<IoOpcode>(command.opcode)) {
        case IoOpcode::kFlush:
        case IoOpcode::kWriteZeroes:
            return Status::kSuccess;
        case IoOpcode::kRead: {
            if (f.blocks > kMdtsBlocks) return Status::kInvalidField;
            if (f.sectors == 0) {
                if (f.first_sector != 0) return Status::kInvalidField;
                return data_span(command, f.blocks * nvme::kBlockBytes, Length::kExact, data);
            }
            if (f.blocks != 1 || f.first_sector + f.sectors > nvme::kSectorsPerBlock)
                return Status::kInvalidField;
            return data_span(command, f.sectors * nvme::kSectorBytes, Length::kExact, data);
        }
        case IoOpcode::kWrite:
            if (f.blocks > kMdtsBlocks) return Status::kInvalidField;
            return data_span(command, f.blocks * nvme::kBlockBytes, Length::kExact, data);
        case IoOpcode::kDatasetManagement: {
            const std::uint32_t bytes =
                ((command.cdw10 & 0xFFu) + 1) * static_cast<std::uint32_t>(sizeof(nvme::DsmRange));
            // Hosts may send the full list of 256 ranges whatever the count (Linux does).
            const Status s = data_span(command, bytes, Length::kAtLeast, data);
            if (nvme::ok(s)) data = data.first(bytes);
            return s;
        }
    }
    return Status::kInvalidOpcode;
}

}  // namespace gnstor::ssd
