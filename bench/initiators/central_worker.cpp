// central_worker.cpp: one thread of a central array engine.
#include "bench/initiators/central_worker.hpp"

#include <gnstor/base/log.hpp>
#include <gnstor/simt/time.hpp>

#include "bench/cpu_meter.hpp"

#include <algorithm>
#include <bit>

namespace gnstor::bench {
namespace {

constexpr std::uint32_t kRingEntries = 256;
constexpr std::uint32_t kQueueEntries = 256;
constexpr std::uint32_t kBatch = 32;
constexpr std::uint64_t kStalledNs = 20'000'000'000;  // nothing came back for so long: it never will

std::uint32_t order_of(std::uint32_t blocks) {
    return static_cast<std::uint32_t>(std::countr_zero(blocks));
}

}  // namespace

Result<std::unique_ptr<CentralEngine::Worker>> CentralEngine::Worker::open(const WorkerShared& shared,
                                                                           HostClient& pool, rdma::Nic& nic,
                                                                           rdma::MemoryKeys buffers) {
    std::unique_ptr<Worker> w(new Worker(shared));
    w->nic_ = &nic;
    w->log_blocks_ = std::make_unique<LogBlock[]>(kLogSlots);
    GN_ASSIGN(w->log_keys_,
              nic.register_memory(w->log_blocks_.get(), kLogSlots * sizeof(LogBlock), rdma::kLocalWrite));
    w->registered_ = true;
    GN_ASSIGN(w->queues_, PolledQueues::open(pool, kQueueEntries, buffers));
    w->next_ssd_ = shared.index;
    return w;
}

CentralEngine::Worker::~Worker() {
    queues_.reset();
    if (!registered_) return;
    if (auto done = nic_->deregister_memory(log_keys_); !done.ok()) {
        log_error("the log memory of a central array engine could not be deregistered: {}",
                  done.error().message);
        (void)log_blocks_.release();  // somebody may still read it
    }
}

Result<WorkerRings*> CentralEngine::Worker::add_connection() {
    auto rings = std::make_unique<WorkerRings>();
    GN_ASSIGN(rings->requests, SpscRing<CentralRequest>::create(kRingEntries));
    GN_ASSIGN(rings->answers, SpscRing<Answer>::create(kRingEntries));
    connections_.push_back(std::move(rings));
    for (std::uint32_t i = 0; i < kRingEntries; ++i)
        free_ops_.push_back(static_cast<std::uint32_t>(ops_.size()) + i);
    ops_.resize(ops_.size() + kRingEntries);
    return connections_.back().get();
}

void CentralEngine::Worker::prepare() {
    stop_.store(false, std::memory_order_relaxed);
    times_ = CentralTimes{};
    timer_.begin_run();
}

void CentralEngine::Worker::run() {
    const double before = thread_cpu_seconds();
    std::uint64_t idle_since_ns = simt::now_ns();
    for (std::uint32_t backoff = 0;;) {
        if (round()) {
            backoff = 0;
            idle_since_ns = now_ns_;
            continue;
        }
        // What a broken SSD or a log that cannot be written never answers must not keep stop() waiting: the
        // streams gave up before they stopped us.
        const bool ends = under_way_ == 0 || now_ns_ - idle_since_ns > kStalledNs;
        if (ends && stop_.load(std::memory_order_relaxed)) break;
        simt::pause(backoff);
    }
    if (under_way_ != 0)
        log_error("a central array engine ends while {} requests are still unanswered", under_way_);
    times_.cpu_seconds = thread_cpu_seconds() - before;
    timer_.add_to(times_.work);
}

/// Looks everywhere once. False: there was nothing to do.
bool CentralEngine::Worker::round() {
    now_ns_ = simt::now_ns();
    timer_.begin_round();
    bool progress = take_requests();
    timer_.charge_if(progress, Stage::kHandOver);
    progress = begin_waiting() || progress;
    timer_.charge_if(progress, Stage::kTable);
    const bool answered = take_answers();
    timer_.charge_if(answered, Stage::kPoll);
    bool logged = log_unlogged();
    logged = write_log() || logged;
    timer_.charge_if(logged, Stage::kLog);
    const bool posted = post_pieces();
    queues_->flush();
    timer_.charge_if(posted || logged, Stage::kSubmit);
    const bool durable = answer_logged();
    timer_.charge_if(durable, Stage::kHandOver);
    return progress || answered || logged || posted || durable;
}

bool CentralEngine::Worker::take_requests() {
    bool progress = false;
    for (const auto& rings : connections_) {
        CentralRequest requests[kBatch];
        const std::size_t n =
            rings->requests->pop_some(std::span(requests, std::min<std::size_t>(kBatch, free_ops_.size())));
        for (std::size_t i = 0; i < n; ++i) {
            const std::uint32_t at = free_ops_.back();
            free_ops_.pop_back();
            Op& o = ops_[at];
            o.from = requests[i];
            o.rings = rings.get();
            o.worst = nvme::Status::kSuccess;
            o.left = o.unsent = 0;
            o.record = 0;
            waiting_.push_back(at);
            ++under_way_;
            ++times_.requests;
        }
        progress = progress || n != 0;
    }
    return progress;
}

/// Begins what waits, each once: a request that finds its blocks locked does not hold up those behind it.
bool CentralEngine::Worker::begin_waiting() {
    bool progress = false;
    for (std::size_t n = waiting_.size(); n-- > 0;) {
        const std::uint32_t op = waiting_.front();
        waiting_.pop_front();
        if (begin(op)) {
            progress = true;
        } else {
            ++times_.conflicts;
            waiting_.push_back(op);
        }
    }
    return progress;
}

bool CentralEngine::Worker::begin(std::uint32_t op) {
    Op& o = ops_[op];
    const Request& r = o.from.request;
    const bool fits = r.blocks != 0 && r.blocks <= Extents::kChunkBlocks && std::has_single_bit(r.blocks) &&
                      shared_.table.contains(o.from.client, r.block, r.blocks);
    if (!fits) {
        answer(op, nvme::Status::kLbaOutOfRange);
        return true;
    }
    timer_.charge(Stage::kTable);
    const bool locked = shared_.table.try_lock(o.from.client, r.block, r.blocks, r.write);
    timer_.charge(Stage::kLock);
    if (!locked) return false;
    if (!r.write) {
        begin_read(op);
        return true;
    }
    const bool room = begin_write(op);
    timer_.charge(Stage::kSpace);
    if (room) return true;
    shared_.table.unlock(o.from.client, r.block, r.blocks, true);
    answer(op, nvme::Status::kCapacityExceeded);
    return true;
}

void CentralEngine::Worker::begin_read(std::uint32_t op) {
    Op& o = ops_[op];
    const Request& r = o.from.request;
    // Replicas take turns by address, so that every SSD has work.
    const std::uint32_t replica = (r.block / Extents::kChunkBlocks) % shared_.replicas;
    for (std::uint32_t b = 0; b < r.blocks;) {
        const std::uint32_t first = shared_.table.address(o.from.client, r.block + b, replica);
        std::uint32_t n = 1;
        if (first == BlockTable::kNowhere) {  // never written: no SSD has it
            o.worst = nvme::Status::kLbaOutOfRange;
            break;
        }
        while (b + n < r.blocks && (first + n) % Extents::kChunkBlocks != 0 &&
               shared_.table.address(o.from.client, r.block + b + n, replica) == first + n)
            ++n;
        pieces_.push_back(Piece{op, first, static_cast<std::uint16_t>(n), static_cast<std::uint16_t>(b)});
        ++o.left;
        ++o.unsent;
        b += n;
    }
    if (o.left == 0) finish_read(op);
}

bool CentralEngine::Worker::begin_write(std::uint32_t op) {
    Op& o = ops_[op];
    const Request& r = o.from.request;
    const std::uint32_t order = order_of(r.blocks);
    const std::uint32_t ssds = shared_.extents.ssds();
    const std::uint32_t start = next_ssd_++;
    std::uint32_t found = 0;
    for (std::uint32_t i = 0; i < ssds && found < shared_.replicas; ++i) {
        const std::uint32_t first = stock_.take((start + i) % ssds, order);
        if (first != Extents::kNone) o.first[found++] = first;
    }
    if (found < shared_.replicas) {
        while (found-- > 0) stock_.give(o.first[found], order);
        return false;
    }
    for (std::uint32_t i = 0; i < found; ++i) pieces_.push_back(Piece{op, o.first[i], r.blocks, 0});
    o.left = o.unsent = found;
    ++times_.writes;
    return true;
}

bool CentralEngine::Worker::post_pieces() {
    bool progress = false;
    for (; !pieces_.empty(); pieces_.pop_front()) {
        const Piece& piece = pieces_.front();
        Op& o = ops_[piece.op];
        Request r = o.from.request;
        r.block = piece.pool_block;
        r.blocks = piece.blocks;
        r.buffer += std::size_t{piece.offset_blocks} * nvme::kBlockBytes;
        r.tag = piece.op;
        r.slot = static_cast<std::uint8_t>(shared_.extents.ssd_of(piece.pool_block));
        if (!queues_->post(r)) break;
        --o.unsent;
        progress = true;
    }
    return progress;
}

bool CentralEngine::Worker::take_answers() {
    Answer answers[kBatch];
    const std::uint32_t n = queues_->poll(answers);
    for (std::uint32_t i = 0; i < n; ++i) {
        if ((answers[i].tag & kLogTag) != 0) {
            LogSlot& slot = log_slots_[answers[i].tag & ~kLogTag];
            if (!nvme::ok(answers[i].status))
                log_error("the central array engine could not write its log: {}",
                          nvme::status_name(answers[i].status));
            // A log that cannot be written answers nothing more: the streams give up and say so.
            if (nvme::ok(answers[i].status) && --slot.left == 0) shared_.log.written(slot.number);
            continue;
        }
        Op& o = ops_[answers[i].tag];
        if (!nvme::ok(answers[i].status)) o.worst = answers[i].status;
        if (--o.left != 0) continue;
        if (o.from.request.write)
            finish_write(answers[i].tag);
        else
            finish_read(answers[i].tag);
    }
    return n != 0;
}

void CentralEngine::Worker::finish_read(std::uint32_t op) {
    Op& o = ops_[op];
    const Request& r = o.from.request;
    timer_.charge(Stage::kPoll);
    shared_.table.unlock(o.from.client, r.block, r.blocks, false);
    timer_.charge(Stage::kLock);
    answer(op, o.worst);
    timer_.charge(Stage::kHandOver);
}

void CentralEngine::Worker::finish_write(std::uint32_t op) {
    Op& o = ops_[op];
    const Request& r = o.from.request;
    if (!nvme::ok(o.worst)) {
        for (std::uint32_t i = 0; i < shared_.replicas; ++i) stock_.give(o.first[i], order_of(r.blocks));
        shared_.table.unlock(o.from.client, r.block, r.blocks, true);
        answer(op, o.worst);
        return;
    }
    unlogged_.push_back(op);
}

/// Records what is written, as far as the open block has room; the rest waits for a seal.
bool CentralEngine::Worker::log_unlogged() {
    LogRecord records[kBatch];
    const std::size_t due = std::min<std::size_t>(unlogged_.size(), kBatch);
    if (due == 0) return false;
    for (std::size_t i = 0; i < due; ++i) {
        const Op& o = ops_[unlogged_[i]];
        records[i] = LogRecord{o.from.client, o.from.request.block, o.from.request.blocks, 0, {}};
        std::copy_n(o.first, shared_.replicas, records[i].address);
    }
    std::uint64_t first = 0;
    const std::size_t logged = shared_.log.append_some(std::span(records, due), first);
    timer_.charge(Stage::kLog);
    for (std::size_t i = 0; i < logged; ++i) {
        const std::uint32_t op = unlogged_.front();
        unlogged_.pop_front();
        ops_[op].record = first + i;
        ops_[op].logged_ns = now_ns_;
        switch_addresses(ops_[op]);
        logged_.push_back(op);
    }
    return logged != 0;
}

/// Under the blocks' lock, which is given back.
void CentralEngine::Worker::switch_addresses(Op& o) {
    const Request& r = o.from.request;
    for (std::uint32_t i = 0; i < shared_.replicas; ++i)
        for (std::uint32_t b = 0; b < r.blocks; ++b)
            o.old[i * r.blocks + b] = shared_.table.exchange(o.from.client, r.block + b, i, o.first[i] + b);
    timer_.charge(Stage::kTable);
    // Readers may see it from here on: an answer is what a write owes, not its being invisible before.
    shared_.table.unlock(o.from.client, r.block, r.blocks, true);
    timer_.charge(Stage::kLock);
}

bool CentralEngine::Worker::write_log() {
    bool progress = false, tried = false;
    for (std::uint32_t i = 0; i < kLogSlots; ++i) {
        LogSlot& slot = log_slots_[i];
        if (slot.left == 0) {
            if (tried || !shared_.log.might_seal()) continue;
            tried = true;  // once a round: what is appended meanwhile goes out together
            if (!shared_.log.seal(log_blocks_[i])) continue;
            slot.number = log_blocks_[i].number;
            slot.left = slot.unsent = shared_.replicas;
            ++times_.log_blocks;
        }
        while (slot.unsent != 0) {
            const std::size_t blocks = shared_.log_ring.size() / shared_.replicas;
            Request r;
            r.block = shared_.log_ring[slot.number % blocks * shared_.replicas + slot.unsent - 1];
            r.write = true;
            r.tag = kLogTag | i;
            r.buffer = reinterpret_cast<std::byte*>(&log_blocks_[i]);
            r.lkey = log_keys_.lkey;
            r.slot = static_cast<std::uint8_t>(shared_.extents.ssd_of(r.block));
            if (!queues_->post(r)) break;
            --slot.unsent;
            progress = true;
        }
    }
    return progress;
}

bool CentralEngine::Worker::answer_logged() {
    bool progress = false;
    const std::uint64_t durable = shared_.log.durable();
    for (; !logged_.empty() && ops_[logged_.front()].record <= durable; logged_.pop_front()) {
        const std::uint32_t op = logged_.front();
        times_.log_ns += now_ns_ - ops_[op].logged_ns;
        timer_.charge(Stage::kHandOver);
        give_back_old(ops_[op]);
        timer_.charge(Stage::kSpace);
        answer(op, nvme::Status::kSuccess);
        progress = true;
    }
    return progress;
}

void CentralEngine::Worker::give_back_old(const Op& o) {
    const std::uint32_t blocks = o.from.request.blocks;
    for (std::uint32_t i = 0; i < shared_.replicas; ++i) {
        const std::uint32_t* const old = o.old + i * blocks;
        bool whole = old[0] != BlockTable::kNowhere && old[0] % blocks == 0;
        for (std::uint32_t b = 1; b < blocks; ++b) whole = whole && old[b] == old[0] + b;
        if (whole) stock_.give(old[0], order_of(blocks));
        for (std::uint32_t b = 0; !whole && b < blocks; ++b)
            if (old[b] != BlockTable::kNowhere) stock_.give(old[b], 0);
    }
}

void CentralEngine::Worker::answer(std::uint32_t op, nvme::Status status) {
    Op& o = ops_[op];
    const Answer a{o.from.request.tag, status};
    // There is room: a client has no more under way than its ring of requests holds.
    if (!o.rings->answers->try_push(a))
        log_error("the central array engine lost an answer: the client's answer ring is full");
    free_ops_.push_back(op);
    --under_way_;
}

}  // namespace gnstor::bench
