// completion_queue.cpp: see completion_queue.hpp.
#include "rdma/completion_queue.hpp"

#include <gnstor/rdma/completion_words.hpp>
#include <gnstor/simt/atomic.hpp>

#include <sched.h>
#include <bit>
#include <cstring>

namespace gnstor::rdma {

using simt::Scope;

CompletionQueue::CompletionQueue(const CompletionQueueConfig& config)
    : config_(config), entries_log2_(static_cast<std::uint32_t>(std::countr_zero(config.entries))) {
    for (std::uint32_t i = 0; i < config.entries; ++i)
        simt::store_release<Scope::kSystem>(&config.ring[i].counter_own, mlx5::kInitialCounterOwn);
    if (config.consumer_record != nullptr) simt::store_release<Scope::kSystem>(config.consumer_record, 0u);
}

void CompletionQueue::lock() noexcept {
    if (config_.collapsed) return;  // of one queue pair, so of one engine
    std::uint32_t tries = 0;
    while (locked_.exchange(true, std::memory_order_acquire))
        if (++tries % 64 == 0) sched_yield();  // the holder may have lost its core
}

void CompletionQueue::restart_collapsed() {
    if (config_.collapsed)
        simt::store_release<Scope::kSystem>(&config_.ring[0].counter_own, mlx5::kInitialCounterOwn);
}

bool CompletionQueue::write(const CompletionFields& fields) {
    lock();
    if (overrun_.load(std::memory_order_relaxed)) {
        unlock();
        return false;
    }
    mlx5::Cqe64* cqe = config_.ring;
    std::uint8_t owner = 0;
    const std::uint64_t producer = producer_.load(std::memory_order_relaxed);  // written under the lock alone
    if (!config_.collapsed) {
        if (behind() >= config_.entries) {
            // Acquire: the consumer has read (and poisoned) what it gave back; pairs with its release of the
            // record. Its line is the lanes', so it is read only when all that was given back is used.
            consumed_ = be32(simt::load_acquire<Scope::kSystem>(config_.consumer_record));
        }
        if (behind() >= config_.entries) {
            overrun_.store(true, std::memory_order_relaxed);
            unlock();
            return false;
        }
        cqe += producer & (config_.entries - 1);
        owner = static_cast<std::uint8_t>((producer >> entries_log2_) & 1);
    }
    producer_.store(producer + 1, std::memory_order_relaxed);
    // Relaxed stores, as lanes read words ahead of their validity; each word at most once a lap (poller.hpp).
    const bool error = fields.syndrome != mlx5::kSyndromeNone;
    const bool with_data = fields.inline_data != nullptr;
    if (with_data) {
        // Word by word from where they lie: whoever stored them may have done so just now, word by word.
        for (std::uint32_t i = 0; i < (fields.bytes + 3) / 4; ++i) {
            std::uint32_t word = 0xFFFFFFFFu;  // the rest of the last word: poison to lanes (poller.hpp)
            if (fields.bytes - 4 * i >= 4)
                std::memcpy(&word, fields.inline_data + 4 * i, 4);
            else
                std::memcpy(&word, fields.inline_data + 4 * i, fields.bytes - 4 * i);
            simt::store_relaxed<Scope::kSystem>(&cqe->inline_data[i], word);
        }
    }
    simt::store_relaxed<Scope::kSystem>(&cqe->imm_inval_pkey, be32(fields.invalidated_rkey));
    simt::store_relaxed<Scope::kSystem>(&cqe->byte_cnt, be32(fields.bytes));
    simt::store_relaxed<Scope::kSystem>(&cqe->timestamp_low, static_cast<std::uint32_t>(fields.syndrome)
                                                                 << 24);
    auto op_own = static_cast<std::uint8_t>((fields.opcode << 4) | owner);
    if (with_data && !error) op_own |= mlx5::kInlineScatter32;
    release_last_words(cqe, {be32((static_cast<std::uint32_t>(fields.send_opcode) << 24) | fields.qpn),
                             mlx5::make_counter_own(fields.wqe_counter, op_own)});
    unlock();
    return true;
}

}  // namespace gnstor::rdma
