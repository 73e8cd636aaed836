#include "deengine/front/command_router.hpp"

#include <gnstor/nvme/copy.hpp>

#include <algorithm>

namespace gnstor::deengine {

using nvme::IoOpcode;
using nvme::Status;

static_assert(nvme::kExtentBlocks == 1u << CommandRouter::kExtentShift);

namespace {

/// Dataset management has its fields elsewhere, and flush has no block.
bool names_a_block(const nvme::Command& c) {
    return c.opcode == static_cast<std::uint8_t>(IoOpcode::kRead) ||
           c.opcode == static_cast<std::uint8_t>(IoOpcode::kWrite);
}

}  // namespace

void CommandRouter::send(ShardCommand& command) {
    if (shards_ == 1) return execute(0, command);
    const nvme::BlockAddress last = command.first + command.blocks - 1;
    if (within_extent(command.first, command.blocks))
        return execute(shard_of(command.volume, command.first), command);
    command.tag = join(command.tag, (last >> kExtentShift) - (command.first >> kExtentShift) + 1);
    send_extents(command);
}

void CommandRouter::send_parts(ShardCommand& command, std::span<const nvme::DsmRange> ranges) {
    // Copied: the receiver of a completion may submit another trim, which overwrites the ranges.
    std::vector<nvme::DsmRange> own_ranges(ranges.begin(), ranges.end());
    std::uint32_t parts = 0;
    for (const nvme::DsmRange& range : own_ranges) {
        const std::uint64_t last = range.start + range.blocks - 1;
        parts += shards_ == 1
                     ? 1
                     : static_cast<std::uint32_t>((last >> kExtentShift) - (range.start >> kExtentShift) + 1);
    }
    if (parts > 1) command.tag = join(command.tag, parts);
    for (const nvme::DsmRange& range : own_ranges) {
        command.first = static_cast<nvme::BlockAddress>(range.start);
        command.blocks = range.blocks;
        send_extents(command);
    }
}

/// Sends each extent's blocks to its shard, under the command's tag.
void CommandRouter::send_extents(ShardCommand command) {
    if (shards_ == 1) return execute(0, command);
    std::uint32_t left = command.blocks;
    while (left != 0) {
        const std::uint32_t to_border = (1u << kExtentShift) - (command.first & ((1u << kExtentShift) - 1));
        command.blocks = std::min(left, to_border);
        left -= command.blocks;
        // Earlier parts may have used some of the capacity.
        if (command.op == ShardOp::kWrite) command.room = room();
        execute(shard_of(command.volume, command.first), command);
        command.first += command.blocks;
        if (command.data != nullptr)
            command.data += command.op == ShardOp::kCopySurvey
                                ? sizeof(nvme::SurveyExtent)
                                : std::size_t{command.blocks} * nvme::kBlockBytes;
    }
}

void CommandRouter::flush(ShardCommand& command) {
    if (shards_ > 1) command.tag = join(command.tag, shards_);
    for (std::uint32_t i = 0; i < shards_; ++i) execute(i, command);
}

/// A tag for the parts of a command; the completion of the last part completes the command.
std::uint64_t CommandRouter::join(std::uint64_t tag, std::uint32_t parts) {
    if (free_joins_.empty()) {
        free_joins_.push_back(static_cast<std::uint32_t>(joins_.size()));
        joins_.emplace_back();
    }
    const std::uint32_t index = free_joins_.back();
    free_joins_.pop_back();
    joins_[index] = {tag, parts, Status::kSuccess, 0};
    return kPartTag | index;
}

void CommandRouter::on_complete(std::uint64_t tag, Status status, std::uint64_t result) {
    if ((tag & kPartTag) == 0) return sink_.on_complete(tag, status, result);
    const auto index = static_cast<std::uint32_t>(tag);
    Join& join = joins_[index];
    if (ok(join.status)) {
        join.status = status;
        join.result = result;
    }
    if (--join.parts != 0) return;
    const Join done = join;
    free_joins_.push_back(index);
    sink_.on_complete(done.tag, done.status, done.result);
}

void CommandRouter::prefetch(const nvme::Command& command) const {
    if (inline_port_ == nullptr || !names_a_block(command)) return;
    const nvme::IoFields f = nvme::decode_io(command);
    inline_port_->prefetch(shards_ == 1 ? 0 : shard_of(f.volume, f.block), f.volume, f.block);
}

void CommandRouter::prefetch_page(const nvme::Command& command) const {
    if (inline_port_ == nullptr || !names_a_block(command)) return;
    const nvme::IoFields f = nvme::decode_io(command);
    const bool read = command.opcode == static_cast<std::uint8_t>(IoOpcode::kRead);
    const std::uint32_t first_sector =
        read ? std::min<std::uint32_t>(f.first_sector, nvme::kSectorsPerBlock) : nvme::kSectorsPerBlock;
    inline_port_->prefetch_page(shards_ == 1 ? 0 : shard_of(f.volume, f.block), f.volume, f.block,
                                first_sector);
}

}  // namespace gnstor::deengine
