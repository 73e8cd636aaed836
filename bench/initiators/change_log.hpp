// change_log.hpp: a central engine's log of changes of its mapping table: one order for all threads, blocks
// of records that go out together. Host; any thread (one mutex). Pure: who writes the blocks is the engine's
// business.
//
// append() puts a record into the open block and names its number. seal() returns the open block to the
// thread that will write it, unless enough blocks are on their way: then what is appended meanwhile goes out
// with the next one (group commit). written() says that a block is durable; durable() is the number up to
// which all records are.
//
// Invariants
//   * records are numbered from 1 on, without gaps, in the order of the blocks and within them;
//   * durable() never passes a record of a block that is not written, in whatever order blocks are.
#pragma once

#include <gnstor/nvme/command.hpp>
#include <gnstor/placement/placement.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <span>

namespace gnstor::bench {

struct LogRecord {
    std::uint32_t volume, block, blocks, reserved;
    std::uint32_t address[placement::kMaxReplicas];
};
static_assert(sizeof(LogRecord) == 32, "127 of them in a block, behind the header");

struct LogBlock {
    static constexpr std::uint32_t kRecords = (nvme::kBlockBytes - 32) / sizeof(LogRecord);
    std::uint64_t number;  ///< of the block, from 0 on
    std::uint64_t first;   ///< number of its first record
    std::uint64_t count;
    std::uint64_t reserved;
    LogRecord records[kRecords];
};
static_assert(sizeof(LogBlock) == nvme::kBlockBytes, "as it is written");

class ChangeLog {
  public:
    static constexpr std::uint32_t kUnderWayMax = 16;
    explicit ChangeLog(std::uint32_t under_way_max)
        : under_way_max_(under_way_max < kUnderWayMax ? under_way_max : kUnderWayMax) {}

    /// Number of the record, or 0: the open block is full, until a seal.
    [[nodiscard]] std::uint64_t append(const LogRecord& record) {
        std::uint64_t first = 0;
        return append_some(std::span(&record, 1), first) == 1 ? first : 0;
    }
    /// As many of the records as the open block has room for, under one lock; `first` is the number of the
    /// first of them. Returns how many.
    [[nodiscard]] std::size_t append_some(std::span<const LogRecord> records, std::uint64_t& first) {
        const std::lock_guard lock(mutex_);
        const std::size_t n = std::min<std::size_t>(records.size(), LogBlock::kRecords - open_.count);
        std::copy_n(records.begin(), n, open_.records + open_.count);
        first = open_.first + open_.count;
        open_.count += n;
        note_open();
        return n;
    }
    /// Whether a seal is worth its lock: a moment's truth. Relaxed: the lock decides.
    [[nodiscard]] bool might_seal() const { return sealable_.load(std::memory_order_relaxed); }
    /// Copies the open block to `to` and opens the next. False: nothing was appended, or enough is under way.
    [[nodiscard]] bool seal(LogBlock& to) {
        const std::lock_guard lock(mutex_);
        if (open_.count == 0 || open_.number - written_ >= under_way_max_) return false;
        std::memcpy(&to, &open_, offsetof(LogBlock, records) + open_.count * sizeof(LogRecord));
        last_[open_.number % kUnderWayMax] = open_.first + open_.count - 1;
        done_[open_.number % kUnderWayMax] = false;
        ++open_.number;
        open_.first += open_.count;
        open_.count = 0;
        note_open();
        return true;
    }
    /// Block `number` is durable.
    void written(std::uint64_t number) {
        const std::lock_guard lock(mutex_);
        done_[number % kUnderWayMax] = true;
        while (written_ < open_.number && done_[written_ % kUnderWayMax]) {
            // Release: pairs with the acquire of durable().
            durable_.store(last_[written_ % kUnderWayMax], std::memory_order_release);
            ++written_;
        }
        note_open();
    }
    [[nodiscard]] std::uint64_t durable() const { return durable_.load(std::memory_order_acquire); }

  private:
    void note_open() {
        const bool now = open_.count != 0 && open_.number - written_ < under_way_max_;
        if (sealable_.load(std::memory_order_relaxed) != now) sealable_.store(now, std::memory_order_relaxed);
    }

    const std::uint32_t under_way_max_;
    std::mutex mutex_;  // of everything below but durable_ and sealable_
    LogBlock open_{0, 1, 0, 0, {}};
    std::uint64_t written_ = 0;  // blocks below it are durable
    std::array<std::uint64_t, kUnderWayMax> last_{};
    std::array<bool, kUnderWayMax> done_{};
    // Both are read by every thread in every round, and seldom change.
    alignas(64) std::atomic<std::uint64_t> durable_{0};
    std::atomic<bool> sealable_{false};
};

}  // namespace gnstor::bench
