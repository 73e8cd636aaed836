// jobs.hpp: the demo's kernels: store an archive, and look through a volume. Device code, CPU and GPU lanes.
//
// Each warp (one lane on CPU lanes) takes pieces of the volume off a shared counter, in the order that the
// host shuffled, and does its own I/O. Nothing here knows of files.
#pragma once

#include <gnstor/client/client.hpp>
#include <gnstor/simt/copy.hpp>
#include <gnstor/simt/launch.hpp>

#include "scan.hpp"

#include <cstdint>

namespace gnstor::demo {

inline constexpr std::uint64_t kOperationDeadlineNs = 20'000'000'000;

/// What all warps of a kernel add up. Lane memory.
struct Totals {
    std::uint32_t next;      ///< pieces taken so far
    std::uint32_t found;     ///< matches
    std::uint64_t commands;  ///< reads or writes of one chunk or of one sector, one whatever the replicas
    std::uint64_t bytes;
    std::uint32_t failures;
    std::uint32_t first_failed_status;
    std::uint64_t first_failed_block;
};

/// The next piece for the whole group, or one past the last.
template <class Group>
GN_HD std::uint32_t take_piece(Group group, Totals* totals) {
    std::uint32_t piece = 0;
    if (group.is_leader()) piece = simt::fetch_add<simt::Scope::kDevice>(&totals->next, 1u);
    return group.shfl(piece, group.leader());
}

template <class Group>
GN_HD void note_failure(Group group, Totals* totals, nvme::Status status, std::uint64_t block) {
    if (!group.is_leader()) return;
    if (simt::fetch_add<simt::Scope::kDevice>(&totals->failures, 1u) != 0) return;
    totals->first_failed_status = static_cast<std::uint32_t>(status);
    totals->first_failed_block = block;
}

template <class Group>
GN_HD void note_commands(Group group, Totals* totals, std::uint64_t commands, std::uint64_t bytes) {
    if (!group.is_leader()) return;
    simt::fetch_add<simt::Scope::kDevice>(&totals->commands, commands);
    simt::fetch_add<simt::Scope::kDevice>(&totals->bytes, bytes);
}

/// Writes registered memory to the volume, a piece of `piece_blocks` at a time.
struct StoreJob {
    VolumeRef volume;
    ChannelSet channels;
    const std::byte* source;  ///< of block 0
    std::uint32_t first;      ///< of the blocks to be written
    std::uint32_t blocks;
    std::uint32_t piece_blocks;  ///< whole chunks
    std::uint32_t pieces;
    Totals* totals;
    std::uint32_t* latency_ns;  ///< one a piece

    GN_HD
    void operator()(simt::Lane lane) const {
        const auto group = simt::warp(lane);
        const ChannelRef channel = channels.mine(lane);
        const std::uint32_t chunk_blocks = 1u << volume.geometry.chunk_shift;
        for (std::uint32_t piece; (piece = take_piece(group, totals)) < pieces;) {
            const std::uint32_t done = piece * piece_blocks;
            const std::uint32_t count = blocks - done < piece_blocks ? blocks - done : piece_blocks;
            const std::uint32_t block = first + done;
            const std::uint64_t begin = simt::now_ns();
            const nvme::Status status =
                volume.write(group, channel, block, count, source + std::uint64_t{block} * nvme::kBlockBytes,
                             Deadline::in_ns(kOperationDeadlineNs));
            if (group.is_leader()) latency_ns[piece] = static_cast<std::uint32_t>(simt::now_ns() - begin);
            if (!nvme::ok(status)) note_failure(group, totals, status, block);
            note_commands(group, totals, (count + chunk_blocks - 1) / chunk_blocks,
                          std::uint64_t{count} * nvme::kBlockBytes);
            // Nobody answers: the other pieces would wait as long each.
            if (nvme::is_local(status)) return;
        }
    }
};

/// Reads the volume piece by piece, finds every occurrence of the pattern that begins in the piece, and every
/// block's CRC-32C.
struct GrepJob {
    VolumeRef volume;
    ChannelSet channels;
    Pattern pattern;
    std::uint64_t input_bytes;
    std::uint32_t blocks;
    std::uint32_t piece_blocks;
    std::uint32_t pieces;
    const std::uint32_t* order;  ///< a permutation of the pieces
    Totals* totals;
    std::uint64_t* match_offsets;
    std::uint32_t match_capacity;
    std::uint32_t* crcs;        ///< one a block
    std::uint32_t* latency_ns;  ///< one a piece

    GN_HD
    void operator()(simt::Lane lane) const {
        const auto group = simt::warp(lane);
        const ChannelRef channel = channels.mine(lane);
        // One more block than a piece: the beginning of what follows comes right behind it.
        auto* buffer = static_cast<std::uint8_t*>(
            channel.alloc(group, (std::uint64_t{piece_blocks} + 1) * nvme::kBlockBytes));
        if (buffer == nullptr) {
            note_failure(group, totals, nvme::Status::kNoBuffer, 0);
            return;
        }
        for (std::uint32_t taken; (taken = take_piece(group, totals)) < pieces;) {
            const std::uint32_t first = order[taken] * piece_blocks;
            const std::uint32_t count = blocks - first < piece_blocks ? blocks - first : piece_blocks;
            const nvme::Status status = fetch(group, channel, first, count, buffer, taken);
            if (nvme::ok(status))
                look_through(group, lane, first, count, buffer);
            else
                note_failure(group, totals, status, first);
            // No answer came: one that is late may still write to the buffer, so it is not used again.
            if (nvme::is_local(status)) return;
            group.sync();
        }
        const nvme::Status freed = channel.free(group, buffer);
        if (!nvme::ok(freed)) note_failure(group, totals, freed, 0);
    }

  private:
    template <class Group>
    GN_HD nvme::Status fetch(Group group, ChannelRef channel, std::uint32_t first, std::uint32_t count,
                             std::uint8_t* buffer, std::uint32_t taken) const {
        const std::uint32_t chunk_blocks = 1u << volume.geometry.chunk_shift;
        const std::uint64_t begin = simt::now_ns();
        nvme::Status status =
            volume.read(group, channel, first, count, buffer, Deadline::in_ns(kOperationDeadlineNs));
        if (group.is_leader()) latency_ns[taken] = static_cast<std::uint32_t>(simt::now_ns() - begin);
        note_commands(group, totals, (count + chunk_blocks - 1) / chunk_blocks,
                      std::uint64_t{count} * nvme::kBlockBytes);
        if (nvme::ok(status) && first + count < blocks) {
            status = volume.read_sectors(group, channel, first + count, 0, 1,
                                         buffer + std::uint64_t{count} * nvme::kBlockBytes,
                                         Deadline::in_ns(kOperationDeadlineNs));
            note_commands(group, totals, 1, nvme::kSectorBytes);
        }
        return status;
    }

    template <class Group>
    GN_HD void look_through(Group group, simt::Lane lane, std::uint32_t first, std::uint32_t count,
                            const std::uint8_t* buffer) const {
        const Matches matches{match_offsets, match_capacity, &totals->found};
        for (std::uint32_t i = 0; i < count; ++i) {
            const std::uint64_t base = (std::uint64_t{first} + i) * nvme::kBlockBytes;
            const std::uint64_t left = input_bytes - base;
            const auto starts =
                static_cast<std::uint32_t>(left < nvme::kBlockBytes ? left : nvme::kBlockBytes);
            const std::uint64_t reach = std::uint64_t{nvme::kBlockBytes} + kPatternBytesMax;
            const auto available = static_cast<std::uint32_t>(left < reach ? left : reach);
            const std::uint8_t* block =
                near_memory(group, lane, buffer + std::uint64_t{i} * nvme::kBlockBytes);
            scan_bytes(group, block, starts, available, pattern, base, matches);
            const std::uint32_t crc = block_crc(group, block);
            if (group.is_leader()) crcs[first + i] = crc;
            group.sync();
        }
    }

    /// The block and the bytes behind it where lanes reach them fast: a GPU's shared memory; on a CPU, where
    /// they are.
    template <class Group>
    GN_HD static const std::uint8_t* near_memory(Group group, simt::Lane lane, const std::uint8_t* block) {
#if GN_DEVICE_PASS
        constexpr std::uint32_t kBytes = nvme::kBlockBytes + kPatternBytesMax;
        __shared__ alignas(16) std::uint8_t memory[kWarpsPerBlock][kBytes];
        std::uint8_t* const mine = memory[lane.thread / simt::kWarpLanes];
        simt::copy16(group, mine, block, kBytes);
        group.sync();
        return mine;
#else
        (void)group;
        (void)lane;
        return block;
#endif
    }

  public:
    static constexpr std::uint32_t kWarpsPerBlock = 4;  ///< GPU lanes: at most
};

}  // namespace gnstor::demo
