#include "gateway/block_command.hpp"

#include "ssd/drive/admin.hpp"
#include "ssd/drive/data_pointer.hpp"

#include <cstring>

namespace gnstor::gateway {

using nvme::Command;
using nvme::IoOpcode;
using nvme::Status;

namespace {

constexpr std::uint32_t kForceUnitAccess = 1u << 30;  // CDW12 of read, write and write zeroes
constexpr std::uint32_t kDeallocate = 1u << 2;        // AD, CDW11 of dataset management
constexpr std::uint32_t kAllNamespaces = 0xFFFFFFFFu;

bool lies_within(const BlockNamespace& ns, std::uint64_t first, std::uint64_t blocks) {
    return first <= ns.capacity_blocks && blocks <= ns.capacity_blocks - first;
}

/// Read, write and write zeroes.
Status parse_extent(const Command& command, const BlockNamespace& ns, BlockCommand& out,
                    std::vector<IoRequest>& requests) {
    const std::uint64_t first = command.cdw10 | (std::uint64_t{command.cdw11} << 32);
    const std::uint32_t blocks = (command.cdw12 & 0xFFFFu) + 1;
    IoRequest request;
    if (out.opcode != IoOpcode::kWriteZeroes) {
        if (blocks > ssd::kMdtsBlocks) return Status::kInvalidField;
        std::span<std::byte> data;
        const Status pointer = ssd::data_span(command, blocks * nvme::kBlockBytes, ssd::Length::kExact, data);
        if (!nvme::ok(pointer)) return pointer;
        request.buffer = data.data();
    }
    if (!lies_within(ns, first, blocks)) return Status::kLbaOutOfRange;
    request.block = static_cast<nvme::BlockAddress>(first);
    request.blocks = blocks;
    out.force_unit_access = (command.cdw12 & kForceUnitAccess) != 0;
    requests.push_back(request);
    return Status::kSuccess;
}

/// Copies each range before checking it, because the host may change its memory at any time.
Status parse_ranges(const Command& command, const BlockNamespace& ns, std::vector<IoRequest>& requests) {
    const std::uint32_t count = (command.cdw10 & 0xFFu) + 1;
    std::span<std::byte> data;
    const auto bytes = static_cast<std::uint32_t>(count * sizeof(nvme::DsmRange));
    const Status pointer = ssd::data_span(command, bytes, ssd::Length::kAtLeast, data);
    if (!nvme::ok(pointer)) return pointer;
    const bool deallocate = (command.cdw11 & kDeallocate) != 0;
    for (std::uint32_t i = 0; i < count; ++i) {
        nvme::DsmRange range;
        std::memcpy(&range, data.data() + i * sizeof range, sizeof range);
        if (!lies_within(ns, range.start, range.blocks)) return Status::kLbaOutOfRange;
        // The other attributes are hints about later use, and are ignored.
        if (!deallocate || range.blocks == 0) continue;
        IoRequest request;
        request.block = static_cast<nvme::BlockAddress>(range.start);
        request.blocks = range.blocks;
        requests.push_back(request);
    }
    return Status::kSuccess;
}

Status parse_checked(const Command& command, const BlockNamespace& ns, BlockCommand& out,
                     std::vector<IoRequest>& requests) {
    if (const Status flags = ssd::check_flags(command); !nvme::ok(flags)) return flags;
    out.opcode = static_cast<IoOpcode>(command.opcode);
    const bool everywhere = out.opcode == IoOpcode::kFlush && command.namespace_id == kAllNamespaces;
    switch (out.opcode) {
        case IoOpcode::kFlush:
        case IoOpcode::kRead:
        case IoOpcode::kWrite:
        case IoOpcode::kWriteZeroes:
        case IoOpcode::kDatasetManagement:
            break;
        default:
            return Status::kInvalidOpcode;
    }
    if (command.namespace_id != ssd::kFirstNamespace && !everywhere) return Status::kInvalidNamespace;
    if (out.opcode == IoOpcode::kFlush) return Status::kSuccess;
    const Status parsed = out.opcode == IoOpcode::kDatasetManagement
                              ? parse_ranges(command, ns, requests)
                              : parse_extent(command, ns, out, requests);
    if (!nvme::ok(parsed)) return parsed;
    const bool changes = out.opcode != IoOpcode::kRead && !requests.empty();
    return changes && !ns.writable ? Status::kNamespaceWriteProtected : Status::kSuccess;
}

}  // namespace

Status parse_block_command(const Command& command, const BlockNamespace& ns, BlockCommand& out,
                           std::vector<IoRequest>& requests) {
    out = {};
    requests.clear();
    const Status status = parse_checked(command, ns, out, requests);
    if (!nvme::ok(status)) requests.clear();
    return status;
}

Status host_status(Status status) {
    switch (status) {
        case Status::kSuccess:
        case Status::kLbaOutOfRange:
        case Status::kCapacityExceeded:
        case Status::kNamespaceWriteProtected:
        case Status::kAccessDenied:
        case Status::kWriteFault:
        case Status::kUnrecoveredReadError:
        case Status::kAborted:
            return status;
        case Status::kStaleEpoch:
        case Status::kNotWritable:
            return Status::kNamespaceWriteProtected;
        case Status::kDoubtful:      // a replica that cannot be asked may hold the newest version
        case Status::kOlderVersion:  // older data is never returned unless it was asked for
            return Status::kUnrecoveredReadError;
        default:
            // The array did not answer in time, or with a status that is unknown outside of it.
            return Status::kInternalError;
    }
}

}  // namespace gnstor::gateway
