// numbers.hpp: identifiers that a client of several nodes assigns itself, so that they are the same at
// each node: queue pair numbers, region keys, and memory for tickets. So lanes use one number and one key
// for every node. One thread at a time.
#pragma once

#include "rdma/nic/memory_table.hpp"
#include "rdma/nic/nic.hpp"

#include <gnstor/simt/pinned_memory.hpp>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace gnstor::rdma::shm {

/// Same form as a NIC's own numbers (SoftNic::Impl::adopt): (generation << 12 | place), with the lowest
/// free place.
class QpNumbers {
  public:
    std::optional<QpNumber> take() {
        for (std::uint32_t i = kFirst; i < kPlaces - 1; ++i) {
            if (taken_[i]) continue;
            taken_[i] = true;
            return ((generations_[i]++ & 0xFFFu) << 12) | i;
        }
        return std::nullopt;
    }
    void give(QpNumber number) { taken_[number % kPlaces] = false; }

  private:
    static constexpr std::uint32_t kPlaces = 4096, kFirst = 2;
    std::vector<bool> taken_ = std::vector<bool>(kPlaces);
    std::vector<std::uint32_t> generations_ = std::vector<std::uint32_t>(kPlaces);
};

/// Same form as MemoryTable's keys: (place << 8 | generation), places in the order in which they became
/// free.
class RegionKeys {
  public:
    RegionKeys() {
        for (std::uint32_t i = 0; i < MemoryTable::kRegions; ++i) free_.push_back(i);
    }
    std::optional<std::uint32_t> take() {
        if (free_.empty()) return std::nullopt;
        const std::uint32_t place = free_.front();
        free_.pop_front();
        if (++generations_[place] == 0) generations_[place] = 1;  // key 0 stands for "none"
        return (place << 8) | generations_[place];
    }
    void give(std::uint32_t key) { free_.push_back(key >> 8); }

  private:
    std::deque<std::uint32_t> free_;
    std::vector<std::uint8_t> generations_ = std::vector<std::uint8_t>(MemoryTable::kRegions);
};

/// Memory for the tickets of many rings, several rings per block, as a node limits the blocks that a
/// client shares.
class TicketMemory {
  public:
    /// Whether a ring of so many entries fits into the present blocks; if not, call add() first.
    [[nodiscard]] bool has_room(std::uint32_t entries) const {
        for (const Chunk& chunk : chunks_)
            if (chunk.find(bytes_of(entries))) return true;
        return false;
    }
    /// Adds memory that was shared (PinnedOptions::shareable).
    void add(simt::PinnedMemory memory) { chunks_.push_back({std::move(memory), {}}); }
    [[nodiscard]] static std::size_t chunk_bytes(std::uint32_t entries) {
        return std::max(kChunkBytes, bytes_of(entries));
    }
    /// Never null after has_room() returned true.
    std::uint64_t* take(std::uint32_t entries) {
        for (Chunk& chunk : chunks_) {
            const auto at = chunk.find(bytes_of(entries));
            if (!at) continue;
            chunk.taken[*at] = bytes_of(entries);
            return reinterpret_cast<std::uint64_t*>(chunk.memory.data() + *at);
        }
        return nullptr;
    }
    void give(const std::uint64_t* words) {
        const auto* const at = reinterpret_cast<const std::byte*>(words);
        for (Chunk& chunk : chunks_)
            if (at >= chunk.memory.data() && at < chunk.memory.data() + chunk.memory.size())
                chunk.taken.erase(static_cast<std::size_t>(at - chunk.memory.data()));
    }

  private:
    static constexpr std::size_t kChunkBytes = 256u << 10;
    static std::size_t bytes_of(std::uint32_t entries) { return (std::size_t{entries} * 8 + 63) / 64 * 64; }
    struct Chunk {
        simt::PinnedMemory memory;
        std::map<std::size_t, std::size_t> taken;  ///< bytes by offset
        [[nodiscard]] std::optional<std::size_t> find(std::size_t bytes) const {
            std::size_t at = 0;
            for (const auto& [offset, length] : taken) {
                if (offset - at >= bytes) return at;
                at = offset + length;
            }
            return memory.size() - at >= bytes ? std::optional(at) : std::nullopt;
        }
    };
    std::vector<Chunk> chunks_;
};

}  // namespace gnstor::rdma::shm
