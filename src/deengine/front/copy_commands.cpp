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
        case CopyOpcode::kCopyRead:
            break;
    }
    return ShardOp::kCopyRead;
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
    const placement::SlotState needed =
        opcode == CopyOpcode::kCopyRead ? placement::SlotState::kIn : placement::SlotState::kRebuilding;
    if (map.own_state() != needed) return Status::kWrongSsd;
    if (f.blocks > nvme::kCopyBlocksMax || !CommandRouter::within_extent(f.block, f.blocks))
        return Status::kInvalidField;
    if (opcode != CopyOpcode::kCopyOpen && data.size() != nvme::copy_bytes(f.blocks))
        return Status::kDataSglLengthInvalid;
    if (const Status s = check.check_range(*volume, f.block, f.blocks); !ok(s)) return s;
    out = {};
    out.op = op_of(opcode);
    out.volume = f.volume;
    out.first = f.block;
    out.blocks = f.blocks;
    out.epoch = volume->record.birth_epoch;
    out.volume_epoch = volume->record.epoch;
    out.sequence = f.epoch;     // the window's number
    out.floor = command.cdw13;  // the donor's epoch
    out.data = data.data();
    return Status::kSuccess;
}

}  // namespace gnstor::deengine
