#include "gateway/command_executor.hpp"

#include <gnstor/base/log.hpp>

#include <algorithm>
#include <bit>
#include <utility>

namespace gnstor::gateway {

using nvme::Command;
using nvme::IoOpcode;
using nvme::Status;

namespace {

constexpr std::uint32_t kBurst = 8;             // commands of one queue in a row
constexpr std::uint64_t kLingerNs = 1'000'000;  // time without an answer before the thread may sleep
// Pause before a command that met a broken queue pair begins again.
constexpr std::uint64_t kRetryNs = 20'000'000;
constexpr std::uint8_t kFirstVendorOpcode = 0xC0;
constexpr std::uint32_t kChunksLookedAt = 64;  // chunks of a command that are examined for its SSDs
/// Window of a trim or write zeroes, in commands in flight. Each is one command per chunk, moves no data, and
/// waits until its SSD has made it durable; with the usual window of 8, a request would wait chunks / 8
/// times. One request at a time has this window: half of an SSD's queue.
constexpr std::uint32_t kWideWindow = 64;

const auto kMe = simt::self(simt::Lane{});

}  // namespace

CommandExecutor::CommandExecutor(const VolumeRef& volume, ChannelRef channel, ssd::DriveFacts facts,
                                 ExecutorOptions options)
    : volume_(volume),
      channel_(channel),
      options_(std::move(options)),
      shares_(options_.under_way_max, channel.state().queues),
      watch_(options_.has_predecessor
                 ? WriteLossTracker::resume(volume.geometry.replicas,
                                            options_.predecessor ? &*options_.predecessor : nullptr,
                                            *volume.operation().map)
                 : WriteLossTracker(volume.geometry.replicas, *volume.operation().map)),
      admin_(std::move(facts), *this),
      writable_(volume.mode == VolumeMode::kWrite) {
    if (watch_.inherited_loss())
        log_error(
            "gateway of volume {}: acknowledged, unflushed writes of an earlier gateway may be lost{}: the "
            "first flush of each host fails. Unmount it on its hosts, check the file system, and start the "
            "gateway again",
            options_.volume,
            options_.predecessor ? " because their SSDs were lost"
                                 : " (the record of that gateway cannot be read)");
}

ssd::NvmeQueue* CommandExecutor::add(std::unique_ptr<ssd::ServedQueue> queue) {
    ssd::ServedQueue* const q = queue.get();
    const auto hole = std::find(queues_.begin(), queues_.end(), nullptr);
    q->index = static_cast<std::uint32_t>(hole - queues_.begin());
    if (hole == queues_.end())
        queues_.push_back(std::move(queue));
    else
        *hole = std::move(queue);
    admin_.join(*q);
    // Every command that can be fetched has a Work, and with it a deadline.
    for (std::size_t i = 0; !q->queue.is_admin() && i < q->pending.size(); ++i)
        free_.push_back(std::make_unique<Work>());
    return &q->queue;
}

bool CommandExecutor::remove(const ssd::NvmeQueue* queue) {
    const auto at = std::find_if(queues_.begin(), queues_.end(),
                                 [queue](const auto& q) { return q != nullptr && &q->queue == queue; });
    if (at == queues_.end()) return false;
    admin_.leave(**at);
    for (const auto& work : under_way_)
        if (work->queue == at->get()) give_up(*work);
    collect();
    if (!(*at)->queue.is_admin()) free_.resize(free_.size() - (*at)->pending.size());
    at->reset();
    return true;
}

std::size_t CommandExecutor::queues() const {
    return static_cast<std::size_t>(
        std::count_if(queues_.begin(), queues_.end(), [](const auto& q) { return q != nullptr; }));
}

std::uint32_t CommandExecutor::poll() {
    const std::uint64_t now = simt::now_ns();
    const std::uint32_t work = fetch(now) + advance(now);
    if (work == 0 && !under_way_.empty()) return linger(now);
    progress_ns_ = now;
    backoff_ = 0;
    return work;
}

/// Answers arrive in memory and wake no thread. While some are expected, the thread polls, and yields its
/// core in between; if they take long, its reactor may sleep.
std::uint32_t CommandExecutor::linger(std::uint64_t now_ns) {
    if (now_ns - progress_ns_ > kLingerNs) return 0;
    simt::pause(backoff_);
    return 1;
}

std::uint32_t CommandExecutor::fetch(std::uint64_t now_ns) {
    std::uint32_t fetched = 0;
    const std::size_t count = queues_.size();
    for (std::size_t i = 0; i < count; ++i) {
        ssd::ServedQueue* const q = queues_[(first_queue_ + i) % count].get();
        if (q != nullptr) fetched += fetch_from(*q, kBurst, now_ns);
    }
    if (count != 0) first_queue_ = (first_queue_ + 1) % count;
    return fetched;
}

std::uint32_t CommandExecutor::fetch_from(ssd::ServedQueue& q, std::uint32_t limit, std::uint64_t now_ns) {
    std::uint32_t n = 0;
    while (n < limit && !q.free.empty()) {
        const std::uint32_t slot = q.free.back();
        if (!q.queue.fetch(q.pending[slot].command)) break;
        q.free.pop_back();
        ++n;
        if (q.queue.is_admin())
            take_admin(q, slot);
        else
            take_io(q, slot, now_ns);
    }
    return n;
}

void CommandExecutor::take_admin(ssd::ServedQueue& q, std::uint32_t slot) {
    const Command& command = q.pending[slot].command;
    const bool sets_weights =
        command.opcode == static_cast<std::uint8_t>(nvme::AdminOpcode::kSetFeatures) &&
        (command.cdw10 & 0xFFu) == static_cast<std::uint32_t>(nvme::Feature::kArbitration);
    // Queues are served round robin, whatever their priority class.
    if (sets_weights) return on_complete(q.tag(slot), Status::kFeatureNotChangeable, 0);
    if (command.opcode >= kFirstVendorOpcode) return on_complete(q.tag(slot), Status::kInvalidOpcode, 0);
    admin_.take(q, slot, health());
}

void CommandExecutor::take_io(ssd::ServedQueue& q, std::uint32_t slot, std::uint64_t now_ns) {
    std::unique_ptr<Work> work = std::move(free_.back());
    free_.pop_back();
    const Command& command = q.pending[slot].command;
    const BlockNamespace ns{volume_.geometry.capacity_blocks, writable()};
    Status status = parse_block_command(command, ns, work->command, work->requests);
    if (nvme::ok(status) && stopped_) status = Status::kAborted;
    const bool idle = work->command.opcode != IoOpcode::kFlush && work->requests.empty();
    if (!nvme::ok(status) || idle) {
        if (!nvme::ok(status)) ++counters_.refused;
        free_.push_back(std::move(work));
        return on_complete(q.tag(slot), status, 0);
    }
    work->queue = &q;
    work->slot = slot;
    work->ssds = ssds_of(*work);
    work->deadline_ns = now_ns + options_.timeout_ns;
    work->retry_ns = 0;
    work->begun = work->ended = work->met_no_room = work->in_doubt = false;
    work->sequences.clear();
    under_way_.push_back(std::move(work));
}

void CommandExecutor::flush(std::function<void(bool)> done) {
    if (stopped_) return done(false);
    auto work = std::make_unique<Work>();
    work->done = std::move(done);
    work->command.opcode = IoOpcode::kFlush;
    work->ssds = SsdQuota::kMany;
    work->deadline_ns = simt::now_ns() + options_.timeout_ns;
    under_way_.push_back(std::move(work));
}

/// Which SSDs a command goes to, by the present map. Replicas that are asked only on failover do not count.
SsdQuota::Mask CommandExecutor::ssds_of(const Work& work) const {
    if (work.command.opcode == IoOpcode::kFlush) return SsdQuota::kMany;
    const gnor::Operation op = volume_.operation();
    const bool read = work.command.opcode == IoOpcode::kRead;
    SsdQuota::Mask mask = 0;
    std::uint64_t chunks = 0;
    for (const IoRequest& r : work.requests) {
        const std::uint64_t last = (std::uint64_t{r.block} + r.blocks - 1) >> op.geometry.chunk_shift;
        for (std::uint64_t chunk = r.block >> op.geometry.chunk_shift; chunk <= last; ++chunk) {
            if (++chunks > kChunksLookedAt) return SsdQuota::kMany;
            const auto replicas = placement::place(*op.map, op.geometry, static_cast<std::uint32_t>(chunk));
            for (std::uint32_t i = 0; i < (read ? std::min(1u, replicas.count) : replicas.count); ++i)
                mask |= 1ull << replicas.slot[i];
        }
    }
    const auto few = std::max(2u, std::uint32_t{op.geometry.replicas});
    return static_cast<std::uint32_t>(std::popcount(mask)) > few ? SsdQuota::kMany : mask;
}

/// Moves every command on as far as possible, and answers those that have ended.
std::uint32_t CommandExecutor::advance(std::uint64_t now_ns) {
    if (under_way_.empty()) return 0;
    ChannelState& state = channel_.state();
    see_map();
    std::uint32_t progress = begun_ != 0 ? gnor::poll_once(kMe, state) : 0;
    bool ended = false;
    SsdQuota::Mask kept = 0;      // reserved for the oldest command that waits for room with its SSDs
    std::uint32_t left = begun_;  // begun commands that the loop has not reached yet
    for (const auto& work : under_way_) {
        const bool room = !held_ && begun_ < options_.under_way_max &&
                          (!changes_held_ || !VolumeRef::changes(work->command.opcode));
        if (!work->begun && room && now_ns >= work->retry_ns) {
            if (shares_.has_room(work->ssds, kept)) {
                begin(*work);
                ++left;
            } else {
                kept = SsdQuota::keep_for(work->ssds, kept);
                counters_.share_waits += std::exchange(work->met_no_room, true) ? 0 : 1;
            }
        }
        if (work->begun) {
            --left;
            if (!work->request.done()) progress += step(*work, now_ns) ? 1 : 0;
            if (!work->request.done() || put_off(*work, now_ns) || wait_for_record(*work, now_ns)) continue;
            end(*work, work->request.result());
        } else {
            if (now_ns < work->deadline_ns) {
                // Those after it wait too, and have later deadlines.
                if (left == 0 && !room && !changes_held_) break;
                continue;
            }
            end(*work, Status::kTimedOut);
        }
        ++progress;
        ended = true;
    }
    if (ended) collect();
    return progress;
}

/// The oldest request that benefits from the wide window gets it, and keeps it until it ends.
bool CommandExecutor::step(Work& work, std::uint64_t now_ns) {
    if (work.may_be_wide && wide_ == nullptr) {
        wide_ = &work;
        work.request.set_window(kWideWindow);
    }
    const bool progress =
        work.request.step(channel_.state(), static_cast<std::uint32_t>(now_ns >> 6), now_ns);
    if (work.request.done()) give_window_up(work);
    return progress;
}

void CommandExecutor::give_window_up(const Work& work) {
    if (wide_ == &work) wide_ = nullptr;
}

/// Frees the Work of ended commands; the executor's own flushes are destroyed.
void CommandExecutor::collect() {
    for (auto& work : under_way_) {
        if (!work->ended) continue;
        if (work->queue != nullptr) free_.push_back(std::move(work));
        work.reset();
    }
    std::erase_if(under_way_, [](const auto& work) { return work == nullptr; });
}

bool CommandExecutor::moves_no_bytes_in_many_chunks(const Work& work) const {
    const IoOpcode opcode = work.command.opcode;
    if (opcode != IoOpcode::kDatasetManagement && opcode != IoOpcode::kWriteZeroes) return false;
    std::uint64_t chunks = 0;
    for (const IoRequest& request : work.requests)
        chunks += (std::uint64_t{request.blocks} >> volume_.geometry.chunk_shift) + 1;
    return chunks > gnor::kFewLanesWindow;
}

void CommandExecutor::begin(Work& work) {
    const BlockCommand& command = work.command;
    const VolumeRef volume = command.force_unit_access ? volume_.stable() : volume_;
    const auto count = static_cast<std::uint32_t>(work.requests.size());
    gnor::Cursor cursor = volume.cursor_for(command.opcode, work.requests.data(), count);
    if (command.opcode == IoOpcode::kFlush) {
        cursor.request_count = 1;
        cursor.flush_slots = true;
    }
    if (VolumeRef::changes(command.opcode)) {
        cursor.sequence = volume.take_sequences(kMe, count);
        cursor.sequence_each = true;
        work.sequences.push_back({cursor.sequence, count});
    }
    if (command.opcode == IoOpcode::kFlush) work.mark = watch_.flush_begins(has_old_changes());
    work.map_version = watch_.version();
    work.may_be_wide = moves_no_bytes_in_many_chunks(work);
    work.request.begin(volume.operation(), cursor, simt::Deadline{work.deadline_ns});
    work.begun = true;
    ++begun_;
    changing_ += VolumeRef::changes(command.opcode) ? 1 : 0;
    shares_.take(work.ssds);
}

/// Resolves the sequences of a change whose request has ended or was given up. If it succeeded, sequences of
/// earlier attempts are superseded, because it covers the same blocks; otherwise they keep their outcome
/// (leave_attempt() has recorded doubt).
void CommandExecutor::resolve(Work& work) {
    if (work.sequences.empty()) return;
    if (work.begun && work.request.in_doubt())
        work.in_doubt = true;
    else if (work.begun && nvme::ok(work.request.result()))
        work.in_doubt = false;
    else if (work.begun) {
        const Work::Sequences last = work.sequences.back();
        volume_.resolve(last.first, last.count);
        work.sequences.pop_back();
    }
    for (const Work::Sequences& taken : work.sequences)
        volume_.resolve(taken.first, taken.count, work.in_doubt);
    work.sequences.clear();
}

/// Ends this attempt; the command begins again later.
void CommandExecutor::leave_attempt(Work& work) {
    if (work.request.in_doubt()) {
        work.in_doubt = true;
    } else if (!work.sequences.empty()) {  // the change reached no SSD
        const Work::Sequences last = work.sequences.back();
        volume_.resolve(last.first, last.count);
        work.sequences.pop_back();
    }
    leave_channel(work);
}

void CommandExecutor::leave_channel(Work& work) {
    work.begun = false;
    give_window_up(work);
    --begun_;
    changing_ -= VolumeRef::changes(work.command.opcode) ? 1 : 0;
    shares_.give(work.ssds);
}

/// If a queue pair is in error, the command waits for reclaim() and begins again. If the host got the error
/// instead, it would retry a few times at once, and report an error to its file system within a millisecond.
bool CommandExecutor::put_off(Work& work, std::uint64_t now_ns) {
    if (work.request.result() != Status::kQueueError || now_ns + kRetryNs >= work.deadline_ns) return false;
    leave_attempt(work);
    work.retry_ns = now_ns + kRetryNs;
    return true;
}

/// A change that SSDs refuse for lack of room waits until the floor rises, which happens only in the next
/// epoch. So changes in flight are given up here, and begun again in that epoch.
void CommandExecutor::recall_changes() {
    for (const auto& work : under_way_) {
        if (!work->begun || !VolumeRef::changes(work->command.opcode) || work->request.done()) continue;
        work->request.give_up(channel_.state(), 0);
        leave_attempt(*work);
    }
}

/// Sequences of the old epoch are dropped: the commands get new ones in the new epoch.
void CommandExecutor::renewed(const VolumeRef& volume) {
    volume_ = volume;
    for (const auto& work : under_way_) {
        work->sequences.clear();
        work->in_doubt = false;
    }
}

/// Answers the command; collect() frees its Work.
void CommandExecutor::end(Work& work, Status status) {
    resolve(work);
    if (work.begun) leave_channel(work);
    work.ended = true;
    if (nvme::ok(status) && VolumeRef::changes(work.command.opcode) && !record_covers())
        status = Status::kInternalError;
    if (nvme::ok(status) && work.command.opcode == IoOpcode::kFlush) status = judge_flush(work);
    if (nvme::ok(status) && VolumeRef::changes(work.command.opcode)) watch_.answered();
    if (status == Status::kStaleEpoch) fence();
    if (status == Status::kOlderVersion) status = judge_older(work);
    if (status == Status::kTimedOut || status == Status::kNotSent) gave_up_ = true;
    if (work.queue == nullptr) return work.done(nvme::ok(status));
    if (nvme::ok(status))
        count(work);
    else
        ++counters_.failed;
    on_complete(work.queue->tag(work.slot), host_status(status), 0);
}

/// Ends a command without waiting for its request.
void CommandExecutor::give_up(Work& work) {
    if (work.begun) {
        work.request.give_up(channel_.state(), 0);
        gave_up_ = true;
    }
    end(work, Status::kAborted);
}

/// Judges a read of blocks whose newest version is doubtful on every replica. A block device must not return
/// older data: the read fails, unless older versions were asked for.
Status CommandExecutor::judge_older(const Work& work) {
    // Logged at the 1st, 2nd, 4th, 8th ... such read.
    if (std::has_single_bit(++counters_.older_reads) && !work.requests.empty())
        log_warn(
            "gateway of volume {}: a read of {} blocks from block {} met a block whose newest version is "
            "torn by a power cut or corrupt on every replica; the host gets {} ({} such reads so far)",
            options_.volume, work.requests[0].blocks, work.requests[0].block,
            options_.serves_older ? "the older version" : "a media error until the block is written again",
            counters_.older_reads);
    return options_.serves_older ? Status::kSuccess : Status::kOlderVersion;
}

/// Another opening for writing exists, or the lease ran out and the daemon closed the epoch. The gateway does
/// not reopen the volume: the file system above relies on what it wrote, and must see the error.
void CommandExecutor::fence() {
    if (!writable_.exchange(false, std::memory_order_relaxed)) return;
    log_error(
        "gateway of volume {}: its write lease is lost, another writer may have the volume: it is read only "
        "from now on. Unmount it on its hosts, and start the gateway again when the other writer is done",
        options_.volume);
    admin_.handler().set_write_protected();
    for (const auto& q : queues_)
        if (q != nullptr) admin_.namespace_changed(*q);
}

bool CommandExecutor::needs_reclaim() {
    bool needs = std::exchange(gave_up_, false);
    ChannelState& state = channel_.state();
    for (std::uint32_t i = 0; i < state.queues; ++i) needs = needs || gnor::is_broken(state, i);
    return needs;
}

bool CommandExecutor::holds_others_back() const {
    return std::any_of(under_way_.begin(), under_way_.end(),
                       [](const auto& work) { return !work->begun && work->retry_ns == 0; });
}

void CommandExecutor::stop() {
    stopped_ = true;
    for (const auto& work : under_way_) give_up(*work);
    collect();
}

void CommandExecutor::on_complete(std::uint64_t tag, Status status, std::uint64_t result) {
    ssd::ServedQueue& q = *queues_[tag >> 32];
    const auto slot = static_cast<std::uint32_t>(tag);
    if (!nvme::ok(status)) admin_.note_error(q, slot, status);
    q.answer(slot, status, result);
}

void CommandExecutor::count(const Work& work) {
    std::uint64_t blocks = 0;
    for (const IoRequest& request : work.requests) blocks += request.blocks;
    switch (work.command.opcode) {
        case IoOpcode::kRead:
            ++counters_.reads;
            counters_.blocks_read += blocks;
            break;
        case IoOpcode::kWrite:
            ++counters_.writes;
            counters_.blocks_written += blocks;
            break;
        case IoOpcode::kFlush:
            ++counters_.flushes;
            break;
        case IoOpcode::kDatasetManagement:
            ++counters_.trims;
            break;
        case IoOpcode::kWriteZeroes:
            ++counters_.write_zeroes;
            break;
    }
}

GatewayState CommandExecutor::state() const {
    GatewayState s{};
    s.under_way = begun_;
    s.waiting = static_cast<std::uint32_t>(under_way_.size()) - begun_;
    s.places = options_.under_way_max;
    s.places_of_one_ssd = shares_.of_one();
    s.places_of_many = shares_.of_many();
    for (std::uint32_t slot = 0; slot < volume_.operation().map->slot_count; ++slot)
        s.ssds.push_back(shares_.used(slot));
    s.many = shares_.used_by_many();
    s.unflushed = watch_.unsettled();
    s.slots_gone = watch_.slots_gone();
    s.flushes_fail = watch_.lost() || (watch_.inherited_loss() && heard_.empty());
    return s;
}

/// The counters that Identify and the health log take from a drive.
deengine::EngineCounters CommandExecutor::health() const {
    deengine::EngineCounters counters{};
    counters.reads = counters_.reads;
    counters.writes = counters_.writes;
    counters.blocks_read = counters_.blocks_read;
    counters.blocks_written = counters_.blocks_written;
    // Only the drives know how much of a volume is written; a thin one may report its whole capacity (NUSE).
    counters.mapped_blocks = volume_.geometry.capacity_blocks;
    return counters;
}

}  // namespace gnstor::gateway
