// engine_impl.hpp: the parts of an Engine and how they hang together; bodies in engine.cpp (I/O), admin.cpp
// (vendor commands) and recovery.cpp (mount).
//
// Invariants
//   * a page is valid in the allocator exactly while the block map names it: sum of valid pages ==
//   blocks.size();
//   * a command is checked and done within one submit(), so that no change of permission, epoch or map lies
//   between (the
//     commit point of DESIGN.md); what waits is only its answer, and admin changes give those first
//     (settle());
//   * state is stored before it is current.
// One owner thread.
#pragma once

#include "deengine/active_map.hpp"
#include "deengine/block_map.hpp"
#include "deengine/command_check.hpp"
#include "deengine/engine.hpp"
#include "deengine/firmware_state.hpp"
#include "deengine/flash_allocator.hpp"
#include "deengine/order.hpp"

#include <optional>
#include <vector>

namespace gnstor::deengine {

struct Engine::Impl {
    /// New contents of consecutive blocks of one volume, of one order.
    struct Change {
        nvme::VolumeId volume;
        nvme::BlockAddress first;
        std::uint32_t blocks;
        nvme::Epoch epoch;
        std::uint64_t sequence;
        const std::byte* data;  ///< null: tombstones
    };
    struct PlannedBlock {
        enum class Action : std::uint8_t { kSuperseded, kReplace, kInsert } action;
        BlockMap::Ticket ticket;  ///< kInsert
        PageNumber old_page;      ///< kReplace
    };

    Impl(Flash& flash_in, MetadataStore& metadata_in, const EngineOptions& options_in,
         CompletionSink& sink_in, FirmwareState state_in);

    // engine.cpp
    void submit(const nvme::Command& command, Requester from, std::span<std::byte> data, std::uint64_t tag,
                std::uint64_t now_ns);
    std::uint32_t settle();
    nvme::Status read(const nvme::IoFields& f, std::byte* to);
    nvme::Status read_block(BlockKey key, std::uint32_t first_sector, std::uint32_t sectors, std::byte* to);
    nvme::Status trim(const CheckedCommand& c);
    nvme::Status plan_ranges(const CheckedCommand& c);
    nvme::Status apply(const Change& change);
    nvme::Status plan(const Change& change);
    void cancel_plan(std::uint32_t from, std::uint32_t end);
    std::optional<bool> is_newer(PageNumber stored, const Change& change, std::uint32_t block);
    nvme::Status program(const std::byte* data, PageOob& oob, PageNumber& page);
    void answer(std::uint64_t tag, nvme::Status status, std::uint32_t dw0);
    void answer_when_durable(std::uint64_t tag, bool wait);
    void retire(std::uint32_t unit);
    void refresh_gauges();

    // admin.cpp
    nvme::Status admin(const nvme::Command& command, Requester from, std::span<std::byte> data,
                       std::uint64_t now_ns, std::uint32_t& dw0);
    nvme::Status check_term(std::uint64_t term, std::uint32_t& dw0);
    nvme::Status volume_change(const nvme::Command& command, std::span<const std::byte> data);
    nvme::Status volume_delete(nvme::VolumeId vid);
    nvme::Status volume_list(const nvme::Command& command, std::span<std::byte> data);
    nvme::Status map_set(std::span<const std::byte> data, std::uint64_t now_ns, std::uint32_t& dw0);
    [[nodiscard]] bool is_valid_map(const nvme::MapSet& set) const;
    [[nodiscard]] bool moves_slot(const nvme::MapSet& set) const;
    nvme::Status floor(const nvme::Command& command, Requester from, std::uint32_t& dw0);
    bool store_and_swap(FirmwareState&& next);

    // recovery.cpp
    Result<void> recover(RecoveryReport& report);
    /// False if the block map has no room: nothing may be mounted without a page that was acknowledged.
    bool recover_page(PageNumber page, const PageOob& oob, RecoveryReport& report);
    bool wins(PageNumber page, const PageOob& oob, PageNumber stored);
    bool is_readable(PageNumber page, const PageOob& oob);

    Flash& flash;
    MetadataStore& metadata;
    const EngineOptions options;
    CompletionSink& sink;
    FirmwareState state;
    ActiveMap active_map;
    CommandCheck check;
    BlockMap blocks;
    FlashAllocator allocator;
    EngineCounters counters{};
    std::uint64_t capacity;
    bool unsynced = false;               ///< something was programmed since the last sync
    std::vector<std::uint64_t> waiting;  ///< tags that are answered after the next sync
    std::vector<PlannedBlock> planned;
    std::vector<std::byte> scratch;  ///< one page, for recovery
};

}  // namespace gnstor::deengine
