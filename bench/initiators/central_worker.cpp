// central_worker.cpp: one thread of a central array engine.
#include "bench/initiators/central_worker.hpp"

#include <gnstor/base/log.hpp>
#include <gnstor/simt/time.hpp>

#include <algorithm>
#include <bit>
#include <ctime>

namespace gnstor::bench {
namespace {

constexpr std::uint32_t kRingEntries = 256;
constexpr std::uint32_t kQueueEntries = 256;
constexpr std::uint32_t kBatch = 32;
constexpr std::uint64_t kLockSampleOf = 16;
constexpr std::uint64_t kStalledNs = 20'000'000'000;  // nothing came back for so long: it never will

double thread_cpu_seconds() {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
}

std::uint32_t order_of(std::uint32_t blocks) {
    return static_cast<std::uint32_t>(std::countr_zero(blocks));
}

}  // namespace

Result<std::unique_ptr<CentralEngine::Worker>> CentralEngine::Worker::open(const WorkerShared& shared,
                                                                           HostClient& pool,
                                                                           rdma::SoftNic& nic,
                                                                           rdma::MemoryKeys buffers) {
    std::unique_ptr<Worker> w(new Worker(shared));
    w->nic_ = &nic;
    w->log_blocks_ = std::make_unique<LogBlock[]>(kLogSlots);
    GN_ASSIGN(w->log_keys_,
              nic.register_memory(w->log_blocks_.get(), kLogSlots * sizeof(LogBlock), rdma::kLocalWrite));
    w->registered_ = true;
    GN_ASSIGN(w->queues_, PolledQueues::open(pool, kQueueEntries, buffers, false));
    w->next_ssd_ = shared.index;
    return w;
}

CentralEngine::Worker::~Worker() {
    queues_.reset();
    if (!registered_) return;
    if (auto done = nic_->deregister_memory(log_keys_); !done.ok()) {
        log_error("the log of an array engine stays registered: {}", done.error().message);
        (void)log_blocks_.release();  // somebody may still read it
    }
}

Result<WorkerRings*> CentralEngine::Worker::add_connection() {
    auto rings = std::make_unique<WorkerRings>();
    GN_ASSIGN(rings->requests, SpscRing<CentralRequest>::create(kRingEntries));
    GN_ASSIGN(rings->answers, SpscRing<Answer>::create(kRingEntries));
    connections_.push_back(std::move(rings));
    return connections_.back().get();
}

void CentralEngine::Worker::prepare() {
    stop_.store(false, std::memory_order_relaxed);
    times_ = CentralTimes{};
}

void CentralEngine::Worker::run() {
    const double before = thread_cpu_seconds();
    std::uint64_t idle_since_ns = simt::now_ns();
    for (std::uint32_t backoff = 0;;) {
        now_ns_ = simt::now_ns();
        bool progress = take_requests();
        progress = begin_waiting() || progress;
        progress = take_answers() || progress;
        progress = log_unlogged() || progress;
        progress = write_log() || progress;
        progress = post_pieces() || progress;
        queues_->flush();
        progress = answer_logged() || progress;
        if (progress) {
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
    if (under_way_ != 0) log_error("an array engine ends with {} requests unanswered", under_way_);
    times_.cpu_seconds = thread_cpu_seconds() - before;
}

bool CentralEngine::Worker::take_requests() {
    bool progress = false;
    for (const auto& rings : connections_) {
        CentralRequest requests[kBatch];
        const std::size_t n = rings->requests->pop_some(requests);
        for (std::size_t i = 0; i < n; ++i) {
            std::uint32_t at = 0;
            if (free_ops_.empty()) {
                at = static_cast<std::uint32_t>(ops_.size());
                ops_.emplace_back();
            } else {
                at = free_ops_.back();
                free_ops_.pop_back();
            }
            ops_[at] = Op{};
            ops_[at].from = requests[i];
            ops_[at].rings = rings.get();
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
    const bool timed = times_.requests % kLockSampleOf == 0;
    const std::uint64_t before = timed ? simt::now_ns() : 0;
    if (!shared_.table.try_lock(o.from.client, r.block, r.blocks, r.write)) return false;
    if (!r.write) {
        begin_read(op);
    } else if (!begin_write(op)) {
        shared_.table.unlock(o.from.client, r.block, r.blocks, true);
        answer(op, nvme::Status::kCapacityExceeded);
    }
    if (timed) {
        times_.lock_ns += simt::now_ns() - before;
        ++times_.lock_samples;
    }
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
        const std::uint32_t first = shared_.extents.take((start + i) % ssds, order);
        if (first != Extents::kNone) o.first[found++] = first;
    }
    if (found < shared_.replicas) {
        while (found-- > 0) shared_.extents.give(o.first[found], order);
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
                log_error("the array engine's log was not written: {}", nvme::status_name(answers[i].status));
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
    shared_.table.unlock(o.from.client, r.block, r.blocks, false);
    answer(op, o.worst);
}

void CentralEngine::Worker::finish_write(std::uint32_t op) {
    Op& o = ops_[op];
    const Request& r = o.from.request;
    if (!nvme::ok(o.worst)) {
        for (std::uint32_t i = 0; i < shared_.replicas; ++i)
            shared_.extents.give(o.first[i], order_of(r.blocks));
        shared_.table.unlock(o.from.client, r.block, r.blocks, true);
        answer(op, o.worst);
        return;
    }
    unlogged_.push_back(op);
}

/// Records what is written, as far as the open block has room; the rest waits for a seal.
bool CentralEngine::Worker::log_unlogged() {
    bool progress = false;
    for (; !unlogged_.empty(); unlogged_.pop_front()) {
        const std::uint32_t op = unlogged_.front();
        append(op);
        if (ops_[op].record == 0) break;
        logged_.push_back(op);
        progress = true;
    }
    return progress;
}

void CentralEngine::Worker::append(std::uint32_t op) {
    Op& o = ops_[op];
    const Request& r = o.from.request;
    LogRecord record{o.from.client, r.block, r.blocks, 0, {}};
    std::copy_n(o.first, shared_.replicas, record.address);
    o.record = shared_.log.append(record);
    if (o.record == 0) return;
    o.logged_ns = now_ns_;
    for (std::uint32_t i = 0; i < shared_.replicas; ++i)
        for (std::uint32_t b = 0; b < r.blocks; ++b)
            o.old[i * r.blocks + b] = shared_.table.exchange(o.from.client, r.block + b, i, o.first[i] + b);
    // Readers may see it from here on: an answer is what a write owes, not its being invisible before.
    shared_.table.unlock(o.from.client, r.block, r.blocks, true);
}

bool CentralEngine::Worker::write_log() {
    bool progress = false;
    for (std::uint32_t i = 0; i < kLogSlots; ++i) {
        LogSlot& slot = log_slots_[i];
        if (slot.left == 0) {
            if (progress || !shared_.log.seal(log_blocks_[i])) continue;
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
        give_back_old(ops_[op]);
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
        if (whole) shared_.extents.give(old[0], order_of(blocks));
        for (std::uint32_t b = 0; !whole && b < blocks; ++b)
            if (old[b] != BlockTable::kNowhere) shared_.extents.give(old[b], 0);
    }
}

void CentralEngine::Worker::answer(std::uint32_t op, nvme::Status status) {
    Op& o = ops_[op];
    const Answer a{o.from.request.tag, status};
    // There is room: a client has no more under way than its ring of requests holds.
    if (!o.rings->answers->try_push(a)) log_error("an answer of the array engine found no room");
    free_ops_.push_back(op);
    --under_way_;
}

}  // namespace gnstor::bench
