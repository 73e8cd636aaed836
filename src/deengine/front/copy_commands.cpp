#include "deengine/front/copy_commands.hpp"

#include "deengine/front/command_router.hpp"

namespace gnstor::deengine {
namespace {

using nvme::CopyOpcode;
using nvme::Status;

ShardOp op_of(CopyOpcode opcode) {
    switch (opcode) {
        case CopyOpcode::kCopyOpen:
            return ShardOp::kCopyOpen;
        case CopyOpcode::kCopyWrite:
            return ShardOp::kCopyWrite;
        case CopyOpcode::kCopySurvey:
            return ShardOp::kCopySurvey;
        case CopyOpcode::kCopyRead:
            break;
    }
    return ShardOp::kCopyRead;
}

/// Of an open volume, only a slot that is *in* is read: a rebuilding one may lack blocks.
bool fits_state(CopyOpcode opcode, bool closed, placement::SlotState state) {
    using enum placement::SlotState;
    return state == kIn || (state == kRebuilding && (closed || opcode != CopyOpcode::kCopyRead));
}

Status check_survey(const Volume& volume, const nvme::IoFields& f, std::size_t data_bytes) {
    if (f.block % nvme::kExtentBlocks != 0 || f.blocks > nvme::kSurveyBlocksMax) return Status::kInvalidField;
    if (f.epoch > static_cast<std::uint32_t>(nvme::SurveyKind::kChanges)) return Status::kInvalidField;
    if (data_bytes != nvme::survey_extents(f.blocks) * sizeof(nvme::SurveyExtent))
        return Status::kDataSglLengthInvalid;
    const std::uint64_t capacity = volume.record.geometry.capacity_blocks;
    return f.block < capacity && f.blocks <= capacity - f.block ? Status::kSuccess : Status::kLbaOutOfRange;
}

Status check_blocks(CommandCheck& check, const Volume& volume, CopyOpcode opcode, const nvme::IoFields& f,
                    std::size_t data_bytes) {
    if (f.blocks > nvme::kCopyBlocksMax || !CommandRouter::within_extent(f.block, f.blocks))
        return Status::kInvalidField;
    if (opcode != CopyOpcode::kCopyOpen && data_bytes != nvme::copy_bytes(f.blocks))
        return Status::kDataSglLengthInvalid;
    return check.check_range(volume, f.block, f.blocks);
}

}  // namespace

Status check_copy(const PermissionTable& permissions, ActiveMap& map, CommandCheck& check,
                  const nvme::Command& command, Requester from, std::span<std::byte> data,
                  std::uint64_t now_ns, ShardCommand& out, std::uint32_t& dw0) {
    if (!from.privileged) return Status::kAccessDenied;
    if (command.namespace_id != 1) return Status::kInvalidNamespace;
    if ((command.flags & kFused) != 0) return Status::kInvalidField;
    const nvme::IoFields f = nvme::decode_io(command);
    if (!map.granted(now_ns)) return Status::kNotGranted;
    if (f.map_version != map.version()) {
        dw0 = map.version();
        return Status::kStaleMap;
    }
    // A drive takes this map only after the records of all volumes: one that is not here was deleted.
    const Volume* volume = permissions.find(f.volume);
    if (volume == nullptr) return Status::kNoSuchVolume;
    const auto opcode = static_cast<CopyOpcode>(command.opcode);
    const bool moves = opcode == CopyOpcode::kCopyRead || opcode == CopyOpcode::kCopyWrite;
    const bool closed = moves && f.epoch == nvme::kCopyClosed;
    if (!fits_state(opcode, closed, map.own_state())) return Status::kWrongSsd;
    // A command that comes late, when the volume has a writer again, changes nothing.
    if (closed && (volume->record.writer != 0 || command.cdw13 != volume->record.epoch))
        return Status::kStaleEpoch;
    const Status fits = opcode == CopyOpcode::kCopySurvey
                            ? check_survey(*volume, f, data.size())
                            : check_blocks(check, *volume, opcode, f, data.size());
    if (!ok(fits)) return fits;
    out = {};
    out.op = op_of(opcode);
    const bool has_all = map.own_state() == placement::SlotState::kIn;
    if (out.op == ShardOp::kCopyWrite && has_all && !closed) out.op = ShardOp::kCopyMend;
    out.volume = f.volume;
    out.first = f.block;
    out.blocks = f.blocks;
    out.epoch = volume->record.birth_epoch;
    out.volume_epoch = volume->record.epoch;
    out.sequence = f.epoch;  // the window's number, or the kind of survey
    // COPY WRITE: the donor's epoch; else the floor that the front knows, which a shard may have lost by a crash.
    out.floor = opcode == CopyOpcode::kCopyWrite ? command.cdw13 : volume->floor;
    out.data = data.data();
    return Status::kSuccess;
}

}  // namespace gnstor::deengine
