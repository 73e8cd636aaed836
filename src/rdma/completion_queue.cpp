// completion_queue.cpp: see completion_queue.hpp.
#include "rdma/completion_queue.hpp"

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
    if (!config_.collapsed) {
        // Acquire: the consumer has read (and poisoned) what it gave back; pairs with its release of the
        // record.
        const std::uint32_t record = be32(simt::load_acquire<Scope::kSystem>(config_.consumer_record));
        const auto behind = (static_cast<std::uint32_t>(producer_) - record) & mlx5::kConsumerMask;
        if (behind >= config_.entries) {
            overrun_.store(true, std::memory_order_relaxed);
            unlock();
            return false;
        }
        cqe += producer_ & (config_.entries - 1);
        owner = static_cast<std::uint8_t>((producer_ >> entries_log2_) & 1);
    }
    ++producer_;
    // Relaxed stores, as lanes read words ahead of their validity; each word at most once a lap (poller.hpp).
    const bool error = fields.syndrome != mlx5::kSyndromeNone;
    const bool with_data = fields.inline_data != nullptr;
    if (with_data) {
        std::uint32_t words[mlx5::kInlineScatterBytes / 4];
        std::memset(words, 0xFF, sizeof words);  // the rest of the last word: poison to lanes (poller.hpp)
        std::memcpy(words, fields.inline_data, fields.bytes);
        for (std::uint32_t i = 0; i < (fields.bytes + 3) / 4; ++i)
            simt::store_relaxed<Scope::kSystem>(&cqe->inline_data[i], words[i]);
    }
    simt::store_relaxed<Scope::kSystem>(&cqe->imm_inval_pkey, be32(fields.invalidated_rkey));
    simt::store_relaxed<Scope::kSystem>(&cqe->byte_cnt, be32(fields.bytes));
    simt::store_relaxed<Scope::kSystem>(&cqe->timestamp_low, static_cast<std::uint32_t>(fields.syndrome)
                                                                 << 24);
    simt::store_relaxed<Scope::kSystem>(
        &cqe->sop_drop_qpn, be32((static_cast<std::uint32_t>(fields.send_opcode) << 24) | fields.qpn));
    auto op_own = static_cast<std::uint8_t>((fields.opcode << 4) | owner);
    if (with_data && !error) op_own |= mlx5::kInlineScatter32;
    // Release: pairs with the lanes' acquire of the last word.
    simt::store_release<Scope::kSystem>(&cqe->counter_own,
                                        mlx5::make_counter_own(fields.wqe_counter, op_own));
    unlock();
    return true;
}

}  // namespace gnstor::rdma
