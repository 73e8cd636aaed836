#include "nvmf/protocol/capsule.hpp"

#include "nvmf/auth/auth_command.hpp"

#include <gnstor/nvme/fabrics.hpp>
#include <gnstor/nvme/features.hpp>
#include <gnstor/nvme/host_set.hpp>
#include <gnstor/nvme/vendor.hpp>

#include <algorithm>
#include <cstring>

namespace gnstor::nvmf {

using nvme::Status;

void MessageBytes::copy(std::uint64_t offset, std::uint32_t bytes, std::byte* to) const {
    for (const rdma::Segment& s : segments_) {
        if (bytes == 0) return;
        if (offset >= s.bytes) {
            offset -= s.bytes;
            continue;
        }
        const auto here = static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes, s.bytes - offset));
        std::memcpy(to, s.data + offset, here);
        to += here;
        bytes -= here;
        offset = 0;
    }
}

const std::byte* MessageBytes::contiguous(std::uint64_t offset, std::uint32_t bytes) const {
    for (const rdma::Segment& s : segments_) {
        if (offset < s.bytes) return bytes <= s.bytes - offset ? s.data + offset : nullptr;
        offset -= s.bytes;
    }
    return nullptr;
}

namespace {

constexpr std::uint8_t kPsdtMask = 0xC0;
constexpr std::uint8_t kFuseMask = 0x03;

DataNeed none() {
    return {};
}
DataNeed to_drive(std::uint32_t bytes) {
    return {Status::kSuccess, Direction::kToDrive, bytes};
}
DataNeed to_host(std::uint32_t bytes) {
    return {Status::kSuccess, Direction::kToHost, bytes};
}
DataNeed refuse(Status status) {
    return {status, Direction::kNone, 0};
}

DataNeed fabrics_need(const nvme::Command& command) {
    switch (nvme::fabrics_type(command)) {
        case nvme::FabricsType::kConnect:
            return to_drive(sizeof(nvme::ConnectData));
        case nvme::FabricsType::kPropertyGet:
        case nvme::FabricsType::kPropertySet:
            return none();
        case nvme::FabricsType::kAuthenticationSend:
        case nvme::FabricsType::kAuthenticationReceive: {
            const auth::AuthCommandVerdict asked = auth::parse_auth_command(command);
            if (!nvme::ok(asked.status)) return refuse(asked.status);
            if (asked.direction == auth::AuthDirection::kSend) return to_drive(asked.bytes);
            // A host may offer more room than any message takes.
            return {.direction = Direction::kToHost, .bytes = asked.bytes, .at_least = true};
        }
        case nvme::FabricsType::kDisconnect:
            break;
    }
    return refuse(Status::kInvalidOpcode);  // Disconnect is not offered (OFCS 0)
}

DataNeed io_need(const nvme::Command& command, ssd::Dialect dialect) {
    switch (static_cast<nvme::IoOpcode>(command.opcode)) {
        case nvme::IoOpcode::kFlush:
        case nvme::IoOpcode::kWriteZeroes:
            return none();
        case nvme::IoOpcode::kDatasetManagement:
            // Hosts may offer room for all 256 ranges whatever the count, as Linux does.
            return {
                .direction = Direction::kToDrive,
                .bytes = static_cast<std::uint32_t>(((command.cdw10 & 0xFFu) + 1) * sizeof(nvme::DsmRange)),
                .at_least = true};
        case nvme::IoOpcode::kWrite:
        case nvme::IoOpcode::kRead: {
            const nvme::IoFields f = nvme::decode_io(command);
            if (f.blocks > kTransferBytesMax / nvme::kBlockBytes) return refuse(Status::kInvalidField);
            if (command.opcode == static_cast<std::uint8_t>(nvme::IoOpcode::kWrite))
                return to_drive(f.blocks * nvme::kBlockBytes);
            // For an ordinary host CDW13 holds hints, not GNStor's sector range.
            if (f.sectors == 0 || dialect == ssd::Dialect::kPlain)
                return to_host(f.blocks * nvme::kBlockBytes);
            // Part of one block. The drive checks the range too; here its length determines how much data
            // moves.
            if (f.blocks != 1 || std::uint32_t{f.first_sector} + f.sectors > nvme::kSectorsPerBlock)
                return refuse(Status::kInvalidField);
            return to_host(f.sectors * nvme::kSectorBytes);
        }
    }
    return refuse(Status::kInvalidOpcode);
}

/// Log pages and volume lists: the command states the length, at most MDTS.
DataNeed sized_to_host(std::uint64_t bytes) {
    if (bytes == 0 || bytes > kTransferBytesMax) return refuse(Status::kInvalidField);
    return to_host(static_cast<std::uint32_t>(bytes));
}

DataNeed by_direction_bits(std::uint8_t opcode) {
    switch (opcode & 3u) {
        case 0:
            return none();
        case 1:
            return {Status::kSuccess, Direction::kToDrive, 0, true};
        case 2:
            return {Status::kSuccess, Direction::kToHost, 0, true};
        default:
            return refuse(Status::kInvalidOpcode);
    }
}

DataNeed admin_need(const nvme::Command& command) {
    switch (static_cast<nvme::AdminOpcode>(command.opcode)) {
        case nvme::AdminOpcode::kIdentify:
            return to_host(nvme::kIdentifyBytes);
        case nvme::AdminOpcode::kGetLogPage: {
            const std::uint64_t dwords =
                ((std::uint64_t{command.cdw11 & 0xFFFFu} << 16) | (command.cdw10 >> 16)) + 1;
            return sized_to_host(dwords * 4);
        }
        case nvme::AdminOpcode::kSetFeatures:  // no feature that is offered has data
        case nvme::AdminOpcode::kGetFeatures:
            return none();
        case nvme::AdminOpcode::kVolumeAdd:
        case nvme::AdminOpcode::kVolumeChmod:
            return to_drive(sizeof(nvme::VolumeRecord));
        case nvme::AdminOpcode::kVolumeList:
            return sized_to_host(command.cdw11);
        case nvme::AdminOpcode::kMapSet:
            return to_drive(sizeof(nvme::MapSet));
        case nvme::AdminOpcode::kMapGet:
            return to_host(sizeof(nvme::MapSet));
        case nvme::AdminOpcode::kHostSet:
            return to_drive(sizeof(nvme::HostSetPage));
        default:
            return by_direction_bits(
                command.opcode);  // NVMe's rule for every other opcode (Base 2.0, figure 138)
    }
}

/// Checks the SGL against `need` and records in `capsule` where the data is.
Status place_data(const MessageBytes& message, const DataNeed& need, Capsule& capsule) {
    const nvme::SglDescriptor& sgl = capsule.command.data;
    const std::uint32_t length = sgl.length();
    if (length == 0 || length > kTransferBytesMax) return Status::kDataSglLengthInvalid;
    const bool fits = need.any_length || (need.at_least ? length >= need.bytes : length == need.bytes);
    if (!fits) return Status::kDataSglLengthInvalid;
    capsule.direction = need.direction;
    capsule.bytes = need.any_length ? length : need.bytes;
    switch (sgl.type) {
        case nvme::kSglKeyedInvalidate:
            capsule.invalidate_key = sgl.key();
            [[fallthrough]];
        case nvme::kSglKeyedAddress:
            if (sgl.address + length < sgl.address) return Status::kDataSglLengthInvalid;
            capsule.payload = Payload::kKeyed;
            capsule.address = sgl.address;
            capsule.key = sgl.key();
            return Status::kSuccess;
        case nvme::kSglDataBlockOffset: {
            if (need.direction != Direction::kToDrive) return Status::kSglTypeInvalid;
            const std::uint64_t carried = message.bytes() - kCommandBytes;
            if (sgl.address > carried) return Status::kSglOffsetInvalid;
            if (length > carried - sgl.address) return Status::kDataSglLengthInvalid;
            capsule.payload = Payload::kInCapsule;
            capsule.offset = kCommandBytes + static_cast<std::uint32_t>(sgl.address);
            return Status::kSuccess;
        }
        default:
            return Status::kSglTypeInvalid;
    }
}

}  // namespace

DataNeed data_need(QueueKind kind, const nvme::Command& command, ssd::Dialect dialect) {
    if (is_fabrics(command)) return fabrics_need(command);
    return kind == QueueKind::kAdmin ? admin_need(command) : io_need(command, dialect);
}

ParsedCapsule parse_capsule(const MessageBytes& message, QueueKind kind, ssd::Dialect dialect) {
    ParsedCapsule parsed;
    if (message.bytes() < kCommandBytes || message.bytes() > kCapsuleBytesMax) {
        parsed.malformed = true;
        return parsed;
    }
    nvme::Command& command = parsed.capsule.command;
    message.copy(0, kCommandBytes, reinterpret_cast<std::byte*>(&command));
    parsed.verdict = Verdict::kRefused;
    if ((command.flags & kPsdtMask) != nvme::kFlagsSgl || (command.flags & kFuseMask) != 0) {
        parsed.malformed = true;
        parsed.status = Status::kInvalidField;
        return parsed;
    }
    const DataNeed need = data_need(kind, command, dialect);
    if (!nvme::ok(need.status)) {
        parsed.status = need.status;
        return parsed;
    }
    if (need.direction != Direction::kNone) {
        parsed.status = place_data(message, need, parsed.capsule);
        if (!nvme::ok(parsed.status)) {
            parsed.malformed = true;
            return parsed;
        }
    }
    parsed.verdict = Verdict::kGood;
    return parsed;
}

}  // namespace gnstor::nvmf
