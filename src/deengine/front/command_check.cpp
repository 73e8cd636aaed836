// command_check.cpp: the chain of checks, in the order that command_check.hpp documents. What relies on those of epoch
// and map: tests/model/epochs.pml, tests/model/map_out.pml.
#include "deengine/front/command_check.hpp"

#include <gnstor/nvme/copy.hpp>

#include <cstring>

namespace gnstor::deengine {
namespace {

using nvme::IoOpcode;
using nvme::Status;

constexpr std::uint32_t kProtectionInformation = 0xFu << 26;  // PRINFO, CDW12 29:26
constexpr std::uint32_t kTrimDeallocate = 1u << 2;            // AD, CDW11

bool is_known(std::uint8_t opcode) {
    switch (static_cast<IoOpcode>(opcode)) {
        case IoOpcode::kFlush:
        case IoOpcode::kWrite:
        case IoOpcode::kRead:
        case IoOpcode::kWriteZeroes:
        case IoOpcode::kDatasetManagement:
            return true;
    }
    return false;
}

/// Bytes that the command moves; trim ranges may come in a larger buffer.
std::uint64_t data_bytes(const CheckedCommand& c) {
    switch (c.opcode) {
        case IoOpcode::kRead:
            if (c.fields.sectors != 0) return std::uint64_t{c.fields.sectors} * nvme::kSectorBytes;
            [[fallthrough]];
        case IoOpcode::kWrite:
            return std::uint64_t{c.fields.blocks} * nvme::kBlockBytes;
        case IoOpcode::kDatasetManagement:
            return c.ranges.size_bytes();
        default:
            return 0;
    }
}

Status check_length(const CheckedCommand& c, std::size_t bytes) {
    const std::uint64_t needed = data_bytes(c);
    const bool fits = c.opcode == IoOpcode::kDatasetManagement ? bytes >= needed : bytes == needed;
    const bool moves = needed != 0;
    return !moves || fits ? Status::kSuccess : Status::kDataSglLengthInvalid;
}

}  // namespace

Status CommandCheck::run(const nvme::Command& raw, Requester from, std::span<const std::byte> data,
                         std::uint64_t now_ns, CheckedCommand& out, std::uint32_t& dw0) {
    if (!is_known(raw.opcode)) return Status::kInvalidOpcode;
    if (raw.namespace_id != 1) return Status::kInvalidNamespace;
    if ((raw.flags & kFused) != 0) return Status::kInvalidField;
    out.opcode = static_cast<IoOpcode>(raw.opcode);
    const bool trim = out.opcode == IoOpcode::kDatasetManagement;
    if (!trim) {
        nvme::decode_io(raw, out.fields);
    } else {
        out.fields = nvme::decode_trim(raw);
        out.ranges = {ranges_.data(), (raw.cdw10 & 0xFFu) + 1};
        out.deallocate = (raw.cdw11 & kTrimDeallocate) != 0;
    }
    const Volume* volume = nullptr;
    if (const Status s = check_rights(out, from, volume, now_ns, dw0); !ok(s)) return s;
    if (const Status s = check_fields(raw, out, *volume); !ok(s)) return s;
    if (const Status s = check_length(out, data.size()); !ok(s)) return s;
    if (out.opcode == IoOpcode::kFlush) return Status::kSuccess;
    if (trim) {
        std::memcpy(ranges_.data(), data.data(), out.ranges.size_bytes());
        return check_ranges(*volume, out.ranges);
    }
    return check_range(*volume, out.fields.block, out.fields.blocks);
}

Status CommandCheck::check_rights(const CheckedCommand& c, Requester from, const Volume*& volume,
                                  std::uint64_t now_ns, std::uint32_t& dw0) const {
    const nvme::IoFields& f = c.fields;
    if (f.client == 0 || f.client != from.client) return Status::kAccessDenied;
    volume = permissions_.find(f.volume);
    if (volume == nullptr || !volume->may_read(f.client)) return Status::kAccessDenied;
    if (!map_.granted(now_ns)) return Status::kNotGranted;
    const bool old_map_goes = mutation_ == Mutation::kOldMapAccepted;
    if (f.map_version != map_.version() && !(old_map_goes && f.map_version < map_.version())) {
        dw0 = map_.version();
        return Status::kStaleMap;
    }
    const nvme::VolumeRecord& record = volume->record;
    const bool change = changes_blocks(c.opcode);
    if (c.opcode == IoOpcode::kRead && !map_.may_read()) return Status::kWrongSsd;
    if (f.epoch < (change ? record.epoch : record.birth_epoch)) return Status::kStaleEpoch;
    // Without a writer the epoch is closed, and changes only by what compares the replicas (docs/array.md, rule 11).
    if (change && record.writer == 0 && f.epoch == record.epoch) return Status::kStaleEpoch;
    if (f.epoch > record.epoch) return Status::kNotGranted;
    if (change && !volume->may_write(f.client) && mutation_ != Mutation::kReaderMayWrite)
        return Status::kNamespaceWriteProtected;
    return Status::kSuccess;
}

Status CommandCheck::check_fields(const nvme::Command& raw, const CheckedCommand& c,
                                  const Volume& volume) const {
    const nvme::IoFields& f = c.fields;
    if (c.opcode == IoOpcode::kRead || c.opcode == IoOpcode::kWrite || c.opcode == IoOpcode::kWriteZeroes) {
        if ((raw.cdw12 & kProtectionInformation) != 0 || f.blocks > mdts_blocks_)
            return Status::kInvalidField;
    }
    if (c.opcode == IoOpcode::kRead) {
        if ((raw.cdw13 >> 17) != 0) return Status::kInvalidField;
        const bool whole = (raw.cdw13 & 0xFFFFu) == 0;
        const bool part =
            f.sectors != 0 && f.first_sector + f.sectors <= nvme::kSectorsPerBlock && f.blocks == 1;
        if (!whole && !part) return Status::kInvalidField;
        // Which replica has the newest of the older versions may differ between blocks.
        if (f.accept_older && f.blocks != 1) return Status::kInvalidField;
    }
    if (changes_blocks(c.opcode)) {
        if (f.sequence == 0 || f.sequence >= nvme::kFirstStamp) return Status::kInvalidField;
        if (f.sequence <= volume.floor) return Status::kCommandSequenceError;
    }
    return Status::kSuccess;
}

Status CommandCheck::check_range(const Volume& volume, std::uint64_t first, std::uint64_t blocks) {
    const placement::VolumeGeometry& g = volume.record.geometry;
    if (first >= g.capacity_blocks || blocks > g.capacity_blocks - first) return Status::kLbaOutOfRange;
    const auto last_chunk = static_cast<std::uint32_t>((first + blocks - 1) >> g.chunk_shift);
    for (auto chunk = static_cast<std::uint32_t>(first >> g.chunk_shift);; ++chunk) {
        if (!map_.owns(g, chunk)) return Status::kWrongSsd;
        if (chunk == last_chunk || mutation_ == Mutation::kOnlyFirstChunk) return Status::kSuccess;
    }
}

Status CommandCheck::check_ranges(const Volume& volume, std::span<const nvme::DsmRange> ranges) {
    for (const nvme::DsmRange& range : ranges) {
        if (range.blocks == 0 || range.blocks > mdts_blocks_) return Status::kInvalidField;
        if (const Status s = check_range(volume, range.start, range.blocks); !ok(s)) return s;
    }
    return Status::kSuccess;
}

}  // namespace gnstor::deengine
