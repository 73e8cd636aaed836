// completion_queue.cpp: see completion_queue.hpp.
#include "rdma/nic/completion_queue.hpp"

#include <gnstor/rdma/completion_words.hpp>
#include <gnstor/simt/atomic.hpp>

#include <sched.h>
#include <algorithm>
#include <bit>
#include <cstring>

namespace gnstor::rdma {

using simt::Scope;

Result<void> check(const CompletionQueueConfig& config) {
    if (config.ring == nullptr || reinterpret_cast<std::uintptr_t>(config.ring) % alignof(mlx5::Cqe64) != 0 ||
        !std::has_single_bit(config.entries) || config.entries > mlx5::kConsumerMask / 2)
        return error(Errc::kInvalidArgument,
                     "cannot create a completion queue of {} entries at {}: the ring must be aligned to 64 "
                     "bytes and the number of entries a power of two",
                     config.entries, static_cast<const void*>(config.ring));
    if (config.collapsed ? config.entries != 1 || config.tickets != nullptr
                         : config.consumer_record == nullptr)
        return error(Errc::kInvalidArgument,
                     "cannot create a completion queue: a collapsed completion queue must have exactly 1 "
                     "entry, any other needs a consumer record");
    return {};
}

void prepare_ring(const CompletionQueueConfig& config) {
    for (std::uint32_t i = 0; i < config.entries; ++i)
        simt::store_release<Scope::kSystem>(&config.ring[i].counter_own, mlx5::kInitialCounterOwn);
    if (config.consumer_record != nullptr) simt::store_release<Scope::kSystem>(config.consumer_record, 0u);
}

CompletionQueue::CompletionQueue(const CompletionQueueConfig& config)
    : config_(config), entries_log2_(static_cast<std::uint32_t>(std::countr_zero(config.entries))) {
    if (config.tickets != nullptr)
        taker_.emplace(config.tickets, config.entries, config.consumer_record);
    else
        prepare_ring(config);
}

void CompletionQueue::lock() noexcept {
    if (config_.collapsed) return;  // belongs to one queue pair, so to one engine
    std::uint32_t tries = 0;
    while (locked_.exchange(true, std::memory_order_acquire))
        if (++tries % 64 == 0) sched_yield();  // the scheduler may have preempted the holder
}

void CompletionQueue::restart_collapsed() {
    if (config_.collapsed)
        simt::store_release<Scope::kSystem>(&config_.ring[0].counter_own, mlx5::kInitialCounterOwn);
}

std::optional<std::uint64_t> CompletionQueue::next_place(QpNumber qpn) {
    if (overrun_.load(std::memory_order_relaxed)) return std::nullopt;
    const std::uint64_t producer = producer_.load(std::memory_order_relaxed);  // written under the lock alone
    if (taker_) {
        std::uint64_t position = 0;
        if (taker_->take(qpn, position) == tickets::Taker::Outcome::kTaken) return position;
        overrun_.store(true, std::memory_order_relaxed);
        return std::nullopt;
    }
    if (!config_.collapsed) {
        if (behind() >= config_.entries) {
            // Acquire: the consumer has read (and poisoned) the entries that it gave back; pairs with its
            // release of the record (poller.inl, consume). Lanes write that cache line, so it is read
            // only when all entries known to be free are used.
            consumed_ = be32(simt::load_acquire<Scope::kSystem>(config_.consumer_record));
        }
        if (behind() >= config_.entries) {
            overrun_.store(true, std::memory_order_relaxed);
            return std::nullopt;
        }
    }
    producer_.store(producer + 1, std::memory_order_relaxed);
    return producer;
}

bool CompletionQueue::write(const CompletionFields& fields) {
    lock();
    const std::optional<std::uint64_t> place = next_place(fields.qpn);
    if (place)
        store(config_.ring + (*place & (config_.entries - 1)), config_.collapsed ? 0 : owner_at(*place),
              fields);
    unlock();
    return place.has_value();
}

void CompletionQueue::store(mlx5::Cqe64* cqe, std::uint8_t owner, const CompletionFields& fields) {
    // Relaxed stores, as lanes read some words before they know that they are valid; each word at most
    // once a lap (poller.hpp).
    const bool error = fields.syndrome != mlx5::kSyndromeNone;
    const bool with_data = fields.inline_data != nullptr;
    if (with_data) {
        // Copies word by word, as lanes may just have stored the source word by word.
        for (std::uint32_t i = 0; i < (fields.bytes + 3) / 4; ++i) {
            std::uint32_t word = 0xFFFFFFFFu;  // pads the last word with poison (poller.hpp)
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
}

bool CompletionQueue::is_written(std::uint64_t position) const {
    const std::uint32_t last =
        acquire_last_words(config_.ring + (position & (config_.entries - 1))).counter_own;
    return mlx5::cqe_opcode(last) != mlx5::kCqeInvalid && mlx5::cqe_owner(last) == owner_at(position);
}

std::vector<QpNumber> CompletionQueue::complete_for(const std::function<bool(QpNumber)>& is_gone,
                                                    CompletionFields fields) {
    std::vector<QpNumber> written;
    for (std::uint32_t i = 0; i < config_.entries; ++i) {
        // Acquire: the process that took this position saw the entry's earlier completion consumed.
        const std::uint64_t ticket = simt::load_acquire<Scope::kSystem>(config_.tickets + i);
        fields.qpn = tickets::qpn_of(ticket);
        if (!is_gone(fields.qpn)) continue;
        if (is_written(tickets::position_of(ticket))) continue;
        // If the entry was consumed and taken again meanwhile, the new ticket was stored before the
        // completion that is_written() saw, so the ticket differs now. If the ticket is unchanged, the
        // position was taken and never written: no other process writes it, and none takes it before it
        // is consumed.
        if (simt::load_acquire<Scope::kSystem>(config_.tickets + i) != ticket) continue;
        store(config_.ring + i, owner_at(tickets::position_of(ticket)), fields);
        written.push_back(fields.qpn);
    }
    return written;
}

CompletionQueue::Waiting CompletionQueue::waiting_of(QpNumber qp) const {
    const std::uint32_t consumed = be32(simt::load_acquire<Scope::kSystem>(config_.consumer_record));
    Waiting waiting;
    for (std::uint32_t i = 0; i < config_.entries; ++i) {
        const std::uint64_t ticket = simt::load_acquire<Scope::kSystem>(config_.tickets + i);
        const auto behind =
            (static_cast<std::uint32_t>(tickets::position_of(ticket)) - consumed) & mlx5::kConsumerMask;
        if (tickets::qpn_of(ticket) != qp || behind >= config_.entries) continue;
        ++waiting.completions;
        const std::uint32_t last = acquire_last_words(config_.ring + i).counter_own;
        // As above: an error of a later ticket does not count for this one.
        if (simt::load_acquire<Scope::kSystem>(config_.tickets + i) != ticket) continue;
        waiting.errors += mlx5::cqe_is_error(last) ? 1 : 0;
    }
    return waiting;
}

bool CompletionQueue::is_settled(QpNumber qp) const {
    const std::uint32_t consumed = be32(simt::load_acquire<Scope::kSystem>(config_.consumer_record));
    std::vector<std::uint64_t> tickets(config_.entries);
    std::uint32_t until = 0;  // its newest completion, relative to the consumer record
    for (std::uint32_t i = 0; i < config_.entries; ++i) {
        tickets[i] = simt::load_acquire<Scope::kSystem>(config_.tickets + i);
        const auto behind =
            (static_cast<std::uint32_t>(tickets::position_of(tickets[i])) - consumed) & mlx5::kConsumerMask;
        if (tickets::qpn_of(tickets[i]) == qp && behind < config_.entries)
            until = std::max(until, behind + 1);
    }
    for (const std::uint64_t ticket : tickets) {
        const std::uint64_t position = tickets::position_of(ticket);
        // Skips positions past `until`, a later lap's among them: the earlier completion there was
        // consumed.
        if (((static_cast<std::uint32_t>(position) - consumed) & mlx5::kConsumerMask) >= until) continue;
        if (!is_written(position)) return false;
    }
    return true;
}

}  // namespace gnstor::rdma
