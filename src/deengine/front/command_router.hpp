// command_router.hpp: sends a checked command to the shards that hold its blocks, and joins their answers.
//
// 256 consecutive blocks (1 MiB, an extent) lie in one shard, and so does a chunk. A command across extents
// is split into parts: each part is answered when it is durable, the command when its last part is.
// Invariants
//   * a command is in one shard, or in parts that count down in `joins_`; the last part completes the command
//     with the first failure of a part, if any;
//   * tags of parts have bit 63 set; callers' tags are below.
// One owner thread: the front's.
#pragma once

#include <gnstor/nvme/command.hpp>

#include "deengine/front/shard_port.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace gnstor::deengine {

class CommandRouter final : public CompletionSink {
  public:
    static constexpr std::uint64_t kPartTag = 1ull << 63;
    static constexpr std::uint32_t kExtentShift = 8;

    /// Whether so many blocks, at least one, lie in one extent, and so in one shard.
    static constexpr bool within_extent(nvme::BlockAddress first, std::uint32_t blocks) {
        return first >> kExtentShift == (std::uint64_t{first} + blocks - 1) >> kExtentShift;
    }

    explicit CommandRouter(CompletionSink& sink) : sink_(sink) {}
    /// Once, after the shards are mounted with this object as their sink. `capacity`: blocks offered.
    void attach(std::unique_ptr<ShardPort> port, std::uint64_t capacity) {
        port_ = std::move(port);
        inline_port_ = dynamic_cast<InlinePort*>(port_.get());
        shards_ = port_->shards();
        capacity_ = capacity;
    }
    [[nodiscard]] ShardPort& port() const { return *port_; }
    /// Whether the shards run on this thread.
    [[nodiscard]] bool is_inline() const { return inline_port_ != nullptr; }
    [[nodiscard]] std::uint64_t capacity() const { return capacity_; }
    /// Blocks that may still be added to the map: capacity less mapped blocks.
    [[nodiscard]] std::uint64_t room() const {
        const std::uint64_t mapped =
            inline_port_ != nullptr ? inline_port_->mapped_blocks() : port_->mapped_blocks();
        return capacity_ > mapped ? capacity_ - mapped : 0;
    }

    void send(ShardCommand& command);
    /// A trim: the command once for each of the ranges.
    void send_parts(ShardCommand& command, std::span<const nvme::DsmRange> ranges);
    /// To all shards.
    void flush(ShardCommand& command);
    void prefetch(const nvme::Command& command) const;
    void prefetch_page(const nvme::Command& command) const;

    /// From the shards.
    void on_complete(std::uint64_t tag, nvme::Status status, std::uint64_t result) override;

  private:
    /// A command that was split into parts.
    struct Join {
        std::uint64_t tag;
        std::uint32_t parts;
        nvme::Status status;
        std::uint64_t result;
    };
    static constexpr std::uint32_t kVolumeStride =
        0x9E37;  ///< spreads equal blocks of volumes over the shards

    void send_extents(ShardCommand command);
    void execute(std::uint32_t shard, const ShardCommand& command) {
        if (inline_port_ != nullptr) return inline_port_->execute(shard, command);
        port_->execute(shard, command);
    }
    [[nodiscard]] std::uint32_t shard_of(nvme::VolumeId volume, nvme::BlockAddress block) const {
        return ((block >> kExtentShift) + volume * kVolumeStride) % shards_;
    }
    std::uint64_t join(std::uint64_t tag, std::uint32_t parts);

    CompletionSink& sink_;
    std::unique_ptr<ShardPort> port_;
    InlinePort* inline_port_ = nullptr;  ///< `port_`, if the shards run on this thread: no virtual call
    std::uint32_t shards_ = 1;
    std::uint64_t capacity_ = 0;
    std::vector<Join> joins_;
    std::vector<std::uint32_t> free_joins_;
};

}  // namespace gnstor::deengine
