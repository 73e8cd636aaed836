#include "ssd/drive/command_path.hpp"

#include "ssd/drive/data_pointer.hpp"

#include <gnstor/base/crc32c.hpp>
#include <gnstor/nvme/copy.hpp>
#include <gnstor/nvme/fencing.hpp>

#include <time.h>

#include <algorithm>
#include <utility>

namespace gnstor::ssd {

using nvme::AdminOpcode;
using nvme::Command;
using nvme::IoOpcode;
using nvme::Status;

namespace {

constexpr std::uint32_t kPollBudget = 256;  // commands per poll
constexpr std::uint32_t kAdminBurst = 4;    // of each admin queue, per poll

std::uint64_t read_clock(clockid_t clock) {
    timespec t{};
    ::clock_gettime(clock, &t);
    return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000ull + static_cast<std::uint64_t>(t.tv_nsec);
}

/// Counts suspended time, as grants demand (docs/array.md, rule 3).
std::uint64_t boot_time_ns() {
    return read_clock(CLOCK_BOOTTIME);
}

bool is_vendor(std::uint8_t opcode) {
    return opcode >= 0xC0;
}

}  // namespace

void CommandPath::serve(deengine::Engine& engine, DriveFacts facts, const DriveTiming& timing) {
    engine_ = &engine;
    write_protected_ = facts.write_protected;
    moves_data_ = engine.moves_data_itself();
    if (!timing.none()) timer_ = std::make_unique<CompletionTimer>(timing, kMdtsBlocks * nvme::kBlockBytes);
    admin_ = std::make_unique<AdminCommands>(std::move(facts), *this);
    batch_.reserve(kBatch);
}

NvmeQueue* CommandPath::add(std::unique_ptr<ServedQueue> queue) {
    ServedQueue* q = queue.get();
    const auto hole = std::find(queues_.begin(), queues_.end(), nullptr);
    q->index = static_cast<std::uint32_t>(hole - queues_.begin());
    if (hole == queues_.end()) {
        queues_.push_back(std::move(queue));
    } else {
        *hole = std::move(queue);
    }
    admin_->join(*q);
    looks_.resize(queues_.size());
    looks_[q->index] = {};
    if (q->queue.is_admin()) {
        admin_queues_.push_back(q);
    } else {
        looks_[q->index] = {&q->queue.tail(), q->queue.fetched(), false};
        arbiter_.add(q->index, q->queue.priority());
        if (timer_ != nullptr) q->due.resize(q->pending.size());
    }
    std::size_t outstanding = 0;
    for (const auto& each : queues_) outstanding += each != nullptr ? each->pending.size() : 0;
    done_.reserve(outstanding);
    if (timer_ != nullptr) timer_->reserve(outstanding);
    return &q->queue;
}

ServedQueue* CommandPath::find(const NvmeQueue* queue) const {
    for (const auto& q : queues_)
        if (q != nullptr && &q->queue == queue) return q.get();
    return nullptr;
}

bool CommandPath::close(const NvmeQueue* queue) {
    ServedQueue* q = find(queue);
    if (q == nullptr) return false;
    q->closing = true;
    admin_->leave(*q);
    if (timer_ != nullptr) {
        // The host no longer observes timing: this queue's completions, those held and those to come, skip
        // the delay.
        std::fill(q->due.begin(), q->due.end(), 0);
        timer_->take_of([q](std::uint64_t tag) { return (tag >> 32) == q->index; }, done_);
    }
    return true;
}

bool CommandPath::idle(const NvmeQueue* queue) const {
    const ServedQueue* q = find(queue);
    return q == nullptr || q->outstanding() == 0;
}

void CommandPath::remove(const NvmeQueue* queue) {
    ServedQueue* q = find(queue);
    if (q == nullptr) return;
    std::erase(admin_queues_, q);
    arbiter_.remove(q->index);
    looks_[q->index] = {};
    queues_[q->index].reset();
}

void CommandPath::flush(std::function<void(bool)> done) {
    const std::uint64_t tag = kOwnTag | ++last_flush_;
    flushes_.emplace(tag, std::move(done));
    engine_->flush(tag);
}

std::size_t CommandPath::queues() const {
    return static_cast<std::size_t>(
        std::count_if(queues_.begin(), queues_.end(), [](const auto& q) { return q != nullptr; }));
}

std::uint32_t CommandPath::poll() {
    look_at_clocks();
    std::uint32_t work = poll_admin();
    look_at_tails();
    // A timed drive polls in short rounds, so that completions leave when they are due.
    work += arbiter_.run(timer_ == nullptr ? kPollBudget : kBatch,
                         [this](std::uint32_t queue, std::uint32_t limit) {
                             return looks_[queue].has_work ? fetch_from(*queues_[queue], limit) : 0;
                         });
    dispatch_batch();
    // After the batch: one sync makes all its writes durable, and they complete in this same poll.
    work += engine_->poll(now_ns_);
    return work + deliver();
}

/// The coarse wall clock lags by a few milliseconds at most, and costs a fifth of the exact one.
void CommandPath::look_at_clocks() {
    now_ns_ = boot_time_ns();
    engine_->observe({now_ns_, read_clock(CLOCK_REALTIME_COARSE)});
}

/// Finds the queues that have commands. The tails lie in other processors' caches: the lines of all queues
/// are prefetched before the first is read, and a queue without commands costs no more than that.
void CommandPath::look_at_tails() {
    for (const Look& look : looks_)
        if (look.tail != nullptr) __builtin_prefetch(look.tail);
    for (std::size_t i = 0; i < looks_.size(); ++i) {
        Look& look = looks_[i];
        // Relaxed: fetch() acquires the tail.
        const std::uint32_t there =
            look.tail != nullptr ? look.tail->load(std::memory_order_relaxed) - look.fetched : 0;
        look.has_work = there != 0;
        if (there != 0) queues_[i]->queue.prefetch_commands(there);
    }
}

std::uint32_t CommandPath::poll_admin() {
    std::uint32_t fetched = 0;
    for (ServedQueue* q : admin_queues_) fetched += fetch_from(*q, kAdminBurst);
    return fetched;
}

std::uint32_t CommandPath::fetch_from(ServedQueue& q, std::uint32_t limit) {
    if (q.closing) return 0;
    std::uint32_t n = 0;
    while (n < limit && !q.free.empty()) {
        const std::uint32_t slot = q.free.back();
        Command& command = q.pending[slot].command;
        if (!q.queue.fetch(command)) break;
        q.free.pop_back();
        ++n;
        if (q.queue.is_admin()) {
            dispatch_admin(q, slot, q.tag(slot));
        } else {
            batch_.push_back({&q, slot});
            if (batch_.size() == kBatch) dispatch_batch();
        }
    }
    looks_[q.index].fetched = q.queue.fetched();
    return n;
}

/// Dispatches in the order of fetching. Prefetches for all commands first, so that their cache misses
/// overlap.
void CommandPath::dispatch_batch() {
    if (batch_.size() > 1) {
        for (const Fetched& f : batch_) engine_->prefetch(f.queue->pending[f.slot].command);
        for (const Fetched& f : batch_) {
            const Command& command = f.queue->pending[f.slot].command;
            engine_->prefetch_page(command);
            if (moves_data_ && command.opcode == static_cast<std::uint8_t>(IoOpcode::kWrite))
                prefetch_payload(reinterpret_cast<const void*>(command.data.address));
        }
    }
    if (timer_ != nullptr) time_batch();
    for (const Fetched& f : batch_)
        dispatch_io(*f.queue, f.queue->pending[f.slot].command, f.queue->tag(f.slot));
    batch_.clear();
}

/// Computes when each command may complete. The clock is read after the fetch, so no command arrived later.
void CommandPath::time_batch() {
    std::array<TimingModel::Request, kBatch> requests;
    std::array<std::uint64_t, kBatch> due;
    std::array<std::uint64_t*, kBatch> to;
    std::size_t count = 0;
    for (const Fetched& f : batch_) {
        std::uint64_t& mine = f.queue->due[f.slot];
        mine = 0;
        if (timer_->request_of(f.queue->pending[f.slot].command, requests[count])) to[count++] = &mine;
    }
    timer_->schedule(boot_time_ns(), std::span(requests).first(count), due);
    for (std::size_t i = 0; i < count; ++i) *to[i] = due[i];
}

void CommandPath::dispatch_io(ServedQueue& q, const Command& command, std::uint64_t tag) {
    if (write_protected_ && command.opcode != static_cast<std::uint8_t>(nvme::IoOpcode::kRead) &&
        command.opcode != static_cast<std::uint8_t>(nvme::IoOpcode::kFlush))
        return on_complete(tag, Status::kNamespaceWriteProtected, 0);
    std::span<std::byte> data;
    const Status checked = check_io(command, data);
    if (!nvme::ok(checked)) return on_complete(tag, checked, 0);
    engine_->submit(command, {q.queue.client(), q.queue.privileged()}, data, tag, now_ns_);
}

void CommandPath::dispatch_admin(ServedQueue& q, std::uint32_t slot, std::uint64_t tag) {
    const Command& command = q.pending[slot].command;
    const Status flags = check_flags(command);
    if (!nvme::ok(flags)) return on_complete(tag, flags, 0);
    if (is_vendor(command.opcode)) return dispatch_vendor(q, command, tag);
    administer(q, slot);
}

/// Arbitration is a setting of the whole drive, which queues of many hosts share: every controller reads the
/// same weights, and only the array's admin host sets them.
void CommandPath::administer(ServedQueue& q, std::uint32_t slot) {
    const Command& command = q.pending[slot].command;
    q.features.arbitration = arbiter_.weights().encode();
    const bool sets_weights =
        command.opcode == static_cast<std::uint8_t>(AdminOpcode::kSetFeatures) &&
        (command.cdw10 & 0xFFu) == static_cast<std::uint32_t>(nvme::Feature::kArbitration);
    if (sets_weights && !q.queue.privileged())
        return on_complete(q.tag(slot), Status::kFeatureNotChangeable, 0);
    admin_->take(q, slot, engine_->counters());
    if (sets_weights) arbiter_.set_weights(ArbitrationWeights::decode(q.features.arbitration));
}

void CommandPath::dispatch_vendor(ServedQueue& q, const Command& command, std::uint64_t tag) {
    // Of the vendor commands only FLOOR may come from a volume's writer (docs/array.md, rule 8): deEngine
    // checks who that is.
    const bool floor = command.opcode == static_cast<std::uint8_t>(AdminOpcode::kFloor);
    if (!q.queue.privileged() && !floor) return on_complete(tag, Status::kAccessDenied, 0);
    // Reads need a map and a term, so these may be set; they are in memory only and end with the process.
    if (write_protected_ && command.opcode != static_cast<std::uint8_t>(AdminOpcode::kVolumeList) &&
        command.opcode != static_cast<std::uint8_t>(AdminOpcode::kMapSet) &&
        command.opcode != static_cast<std::uint8_t>(AdminOpcode::kMapGet) &&
        command.opcode != static_cast<std::uint8_t>(nvme::CopyOpcode::kCopyRead) &&
        command.opcode != static_cast<std::uint8_t>(nvme::CopyOpcode::kCopySurvey) &&
        command.opcode != static_cast<std::uint8_t>(nvme::kGrantAsk))
        return on_complete(tag, Status::kNamespaceWriteProtected, 0);
    std::span<std::byte> data;
    // Bits 1:0 of the opcode give the direction of data; each command checks its own length.
    if ((command.opcode & 3u) != 0 && command.data.length() > 0) {
        const Status pointer = data_span(command, 0, Length::kAtLeast, data);
        if (!nvme::ok(pointer)) return on_complete(tag, pointer, 0);
    }
    engine_->submit_admin(command, {q.queue.client(), q.queue.privileged()}, data, tag, now_ns_);
}

void CommandPath::on_complete(std::uint64_t tag, Status status, std::uint64_t result) {
    done_.push_back({tag, status, result});
}

std::uint32_t CommandPath::deliver() {
    if (!done_.empty()) fence_streamed_copies();  // makes streamed copies visible before any completion is
    if (!done_.empty() || timer_ != nullptr) look_at_clocks();
    if (timer_ != nullptr) return deliver_in_time();
    for (const Done& done : done_) answer(done);
    const auto count = static_cast<std::uint32_t>(done_.size());
    done_.clear();
    return count;
}

/// Timed completions go through the wheel, so that they leave in the order of their due times. A refusal does
/// not wait.
std::uint32_t CommandPath::deliver_in_time() {
    std::uint32_t count = 0;
    const std::uint64_t now = done_.empty() && timer_->idle() ? 0 : boot_time_ns();
    for (const Done& done : done_) {
        const ServedQueue* const q = (done.tag & kOwnTag) != 0 ? nullptr : queues_[done.tag >> 32].get();
        const std::uint64_t at =
            q == nullptr || q->due.empty() ? 0 : q->due[static_cast<std::uint32_t>(done.tag)];
        if (at != 0 && nvme::ok(done.status)) {
            timer_->hold(now, at, done);
            continue;
        }
        answer(done);
        ++count;
    }
    done_.clear();
    for (Done done; timer_->pop(now, done); ++count) answer(done);
    return count + (timer_->idle() ? 0 : 1);  // keeps the reactor awake while a completion is due soon
}

void CommandPath::answer(const Done& done) {
    if ((done.tag & kOwnTag) != 0) [[unlikely]]
        return answer_flush(done);
    ServedQueue& q = *queues_[done.tag >> 32];
    const auto slot = static_cast<std::uint32_t>(done.tag);
    // The grant has ended since the command was checked, so the client may not rely on the result
    // (docs/array.md, rule 2); it retries.
    const bool lapsed = nvme::ok(done.status) && !q.queue.is_admin() && !engine_->granted(now_ns_);
    const Status status = lapsed ? Status::kNotGranted : done.status;
    if (!nvme::ok(status)) admin_->note_error(q, slot, status);
    q.answer(slot, status, done.result);
}

void CommandPath::answer_flush(const Done& done) {
    const auto asked = flushes_.extract(done.tag);
    asked.mapped()(nvme::ok(done.status));
}

}  // namespace gnstor::ssd
