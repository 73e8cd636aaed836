#include "nvmf/target/connection.hpp"

#include <gnstor/base/log.hpp>

#include <algorithm>
#include <cstring>
#include <utility>

namespace gnstor::nvmf {

using nvme::Status;

namespace {

constexpr std::uint32_t kReapBudget = 64;  // completions a poll
constexpr std::uint8_t kStatusPhase = 1;
/// How many commands, in quarters of `entries`, may overtake a write that still counts as in order. The
/// service units of an untimed drive differ in queue length: this is temporary, and held messages do not make
/// them idle. A timed drive delays writes to their modelled time, and would idle while their messages are
/// held.
constexpr std::uint32_t kOvertakenQuarters = 3;
constexpr std::uint32_t kOvertakenQuartersTimed = 1;

std::uint32_t overtaken_most(bool timed, std::uint32_t entries) {
    return entries / 4 * (timed ? kOvertakenQuartersTimed : kOvertakenQuarters);
}

}  // namespace

TargetConnection::TargetConnection(rdma::SoftNic& nic, Subsystem* subsystem, ConnectionOwner& owner,
                                   const TransportRequest& transport, std::function<std::uint64_t()> now_ns)
    : nic_(nic),
      owner_(owner),
      transport_(transport),
      now_ns_(std::move(now_ns)),
      ring_(transport.entries),
      slots_(transport.entries),
      ids_(transport.entries) {
    free_.reserve(transport.entries);
    for (std::uint32_t i = transport.entries; i > 0; --i) free_.push_back(i - 1);
    serve(subsystem);
}

/// Sets the connection's subsystem; null: not known yet.
void TargetConnection::serve(Subsystem* subsystem) {
    subsystem_ = subsystem;
    if (subsystem == nullptr) return;
    drive_reactor_ = subsystem->config.drive_reactor;
    const ssd::NvmeDevice* const device = subsystem->config.device;
    overtaken_most_ = overtaken_most(device != nullptr && device->is_timed(), transport_.entries);
    if (device != nullptr) dialect_ = device->dialect();
}

void TargetConnection::attach(rdma::QpNumber qp, OffloadShard& shard) {
    qp_ = qp;
    shard_ = &shard;
    shard.add(*this);
}

void TargetConnection::on_message(const rdma::InboundMessage& message) {
    if (state_ >= State::kDraining) {
        nic_.release(message.qp, message.token);
        return;
    }
    const MessageBytes bytes(std::span(message.segments, message.segment_count));
    const ParsedCapsule parsed = parse_capsule(bytes, kind(), dialect_);
    counters_.capsules.add();
    if (parsed.malformed) counters_.malformed.add();
    // No complete command, or more commands than the queue has entries: a status might be taken for another
    // command's.
    if (parsed.verdict == Verdict::kBroken || under_way_ >= transport_.entries) {
        if (parsed.verdict != Verdict::kBroken) counters_.malformed.add();
        nic_.release(message.qp, message.token);
        broke_rules_ = true;
        fail();
        return;
    }
    take(parsed, bytes, message);
}

/// Bytes of payload outside the capsule, which place() fetches through a window (RDMA READ).
std::uint32_t TargetConnection::fetch_bytes(const rdma::InboundMessage& message) const {
    const MessageBytes bytes(std::span(message.segments, message.segment_count));
    const ParsedCapsule parsed = parse_capsule(bytes, kind(), dialect_);
    const Capsule& capsule = parsed.capsule;
    const bool fetched = parsed.verdict == Verdict::kGood && capsule.payload == Payload::kKeyed &&
                         capsule.direction == Direction::kToDrive;
    return fetched ? capsule.bytes : 0;
}

void TargetConnection::take(const ParsedCapsule& parsed, const MessageBytes& bytes,
                            const rdma::InboundMessage& message) {
    ++received_;
    const Capsule& capsule = parsed.capsule;
    const std::uint16_t id = capsule.command.command_id;
    if (ids_.has(id)) {
        counters_.malformed.add();
        counters_.refused.add();
        nic_.release(message.qp, message.token);
        // The outstanding command keeps the id: this response is not its own, so it frees nothing.
        answer(id, {.status = Status::kCommandIdConflict});
        return;
    }
    ids_.toggle(id);
    ++under_way_;
    if (parsed.verdict == Verdict::kRefused) {
        nic_.release(message.qp, message.token);
        refuse(capsule, parsed.status);
        return;
    }
    take_command(capsule, bytes, message);
}

void TargetConnection::take_command(const Capsule& capsule, const MessageBytes& bytes,
                                    const rdma::InboundMessage& message) {
    if (is_fabrics(capsule.command)) {
        counters_.admin.add();
        take_fabrics(capsule, bytes, message);
        return;
    }
    if (state_ != State::kReady) {
        nic_.release(message.qp, message.token);
        refuse(capsule, Status::kCommandSequenceError);  // a connection begins with Connect (Base 2.0, 6.3)
        return;
    }
    if (kind() == QueueKind::kIo) {
        submit(capsule, bytes, message);
        return;
    }
    counters_.admin.add();
    Capsule admin = capsule;
    if (take_admin(admin))
        nic_.release(message.qp, message.token);
    else
        submit(admin, bytes, message);
}

std::uint32_t TargetConnection::take_slot(const Capsule& capsule) {
    const std::uint32_t index = free_.back();  // under_way_ <= entries, so there is one
    free_.pop_back();
    Slot& slot = slots_[index];
    slot = Slot{};
    slot.busy = true;
    slot.command_id = capsule.command.command_id;
    slot.opcode = capsule.command.opcode;
    slot.invalidate_key = capsule.invalidate_key;
    return index;
}

void TargetConnection::submit(const Capsule& capsule, const MessageBytes& bytes,
                              const rdma::InboundMessage& message) {
    const std::uint32_t index = take_slot(capsule);
    Slot& slot = slots_[index];
    slot.token = message.token;
    slot.holds_message = true;

    const std::uint32_t need = staging_need(slot, capsule, bytes);
    if (need == 0 || staging_->budget.take(staging_member_, need)) return begin(index, capsule, bytes);
    counters_.waits_for_memory.add();
    Parked& parked = park(index, capsule);
    parked.message = message;
    unstaged_.push_back(index);
    if (capsule.payload == Payload::kInCapsule) return;
    slot.holds_message = false;
    nic_.release(qp_, slot.token);
}

/// The command has its staging memory: makes its data reachable.
void TargetConnection::begin(std::uint32_t index, const Capsule& capsule, const MessageBytes& bytes) {
    Slot& slot = slots_[index];
    std::byte* data = nullptr;
    const Status placed = place(slot, capsule, bytes, data);
    if (!nvme::ok(placed)) return give_back(index, capsule, placed);
    if (slot.holds_window && !slot.window.ready) return await_window(index, capsule);
    hand_over(index, capsule, data);
}

/// The data is reachable: a Connect goes to judge_connect(), any other command to the drive.
void TargetConnection::hand_over(std::uint32_t index, const Capsule& capsule, std::byte* data) {
    if (is_fabrics(capsule.command)) return judge_connect(index, capsule, data);
    if (places_ != nullptr && !places_->budget.take(place_member_, 1)) {
        counters_.waits_for_turn.add();
        park(index, capsule).data = data;
        unplaced_.push_back(index);
        return;
    }
    slots_[index].has_place = places_ != nullptr;
    to_drive(index, capsule, data);
}

void TargetConnection::to_drive(std::uint32_t index, const Capsule& capsule, std::byte* data) {
    Slot& slot = slots_[index];
    slot.event_request = kind() == QueueKind::kAdmin &&
                         slot.opcode == static_cast<std::uint8_t>(nvme::AdminOpcode::kAsyncEventRequest);
    slot.turn = ended_ + at_drive_;
    // The drive queue is deeper than `entries`: there is room.
    nvme::Command* const command = queue_->next_entry();
    if (command == nullptr) return give_back(index, capsule, Status::kInternalError);
    *command = capsule.command;
    command->command_id = static_cast<std::uint16_t>(index);
    command->metadata = ssd::kHasHostCommandId | capsule.command.command_id;
    command->flags = nvme::kFlagsSgl;
    command->data =
        nvme::SglDescriptor::unkeyed(nvme::kSglDataBlockAddress, reinterpret_cast<std::uintptr_t>(data),
                                     data != nullptr ? capsule.bytes : 0);
    queue_->submit();
    count(capsule);
    ++at_drive_;
    if (slot.event_request) ++event_requests_;
    shard_->activate(*this);
    if (drive_reactor_ != nullptr) shard_->wake_soon(*drive_reactor_);
}

/// Refuses a command that did not reach the drive. After a Connect whose data could not be fetched the host
/// may send another.
void TargetConnection::give_back(std::uint32_t index, const Capsule& capsule, Status status) {
    if (state_ == State::kConnecting && is_fabrics(capsule.command)) state_ = State::kAwaitingConnect;
    let_go(slots_[index], false);
    free_slot(index);
    refuse(capsule, status);
}

void TargetConnection::prefetch_answer() const {
    std::uint16_t index = 0;
    if (queue_ == nullptr || !queue_->peek_completion(index)) return;
    if (index < slots_.size()) {
        const auto* const slot = reinterpret_cast<const std::byte*>(&slots_[index]);
        __builtin_prefetch(slot);
        __builtin_prefetch(slot + sizeof(Slot) - 1);
    }
    nic_.prefetch_send(qp_);
}

std::uint32_t TargetConnection::poll() {
    std::uint32_t work = 0;
    nvme::Completion completion;
    while (work < kReapBudget && queue_ != nullptr && queue_->reap(completion)) {
        finish(completion);
        ++work;
    }
    if (state_ != State::kDraining) return work;
    drop_waiting();
    if (at_drive_ == event_requests_ && awaited_.empty() && !connecting_) {
        leave_budgets();
        state_ = State::kQuiesced;
    }
    return work;
}

void TargetConnection::finish(const nvme::Completion& completion) {
    const std::uint32_t index = completion.command_id;
    if (index >= slots_.size() || !slots_[index].busy) {
        log_error("drive {} completed a command that it was not given (tag {})", subsystem_->config.nqn,
                  index);
        return;
    }
    Slot& slot = slots_[index];
    const Status status = completion.result();
    if (nvme::ok(status) && slot.completes_identify) {
        auto& identify = *reinterpret_cast<nvme::IdentifyController*>(slot.page.get());
        {
            const std::lock_guard lock(subsystem_->mutex);
            subsystem_->controllers.complete_identify(binding_.controller_id, identify);
        }
        std::memcpy(slot.window.data, &identify, slot.bytes);
    }
    if (nvme::ok(status) && slot.completes_counters) {
        owner_.add_counters(*subsystem_, *reinterpret_cast<nvme::SsdCountersLog*>(slot.page.get()));
        std::memcpy(slot.window.data, slot.page.get(), slot.bytes);
    }
    if (!nvme::ok(status)) counters_.drive_errors.add();
    judge_order(slot);
    // The window is closed before the response is sent: RDMA WRITE before SEND, so that the completion
    // implies the data.
    let_go(slot, nvme::ok(status));
    const std::uint16_t id = slot.command_id;
    const std::uint32_t invalidate_key = slot.invalidate_key;
    const std::uint32_t written = slot.fills_window && nvme::ok(status) ? slot.bytes : 0;
    const bool unanswered = slot.unanswered;
    --at_drive_;
    if (slot.event_request) --event_requests_;
    free_slot(index);
    end(id);
    if (unanswered || state_ >= State::kDraining) return;
    // A completion queue entry (Base 2.0, 3.3.3.2) in dwords, as the NIC will load it: narrower stores would
    // stall that load.
    const std::uint32_t response[4] = {
        completion.dw0, completion.dw1, sq_head(),
        id | (static_cast<std::uint32_t>(completion.status & ~kStatusPhase) << 16)};
    static_assert(sizeof response == sizeof(nvme::Completion));
    nic_.send(qp_, response, sizeof response, invalidate_key, written);
}

/// Counts a command that the drive has completed, and whether later ones were completed before it.
void TargetConnection::judge_order(const Slot& slot) {
    const std::uint64_t overtaken = ended_ > slot.turn ? ended_ - slot.turn : 0;
    ++ended_;
    if (!slot.carries_blocks) return;
    if (overtaken > overtaken_most_)
        writes_in_turn_ = 0;
    else if (writes_in_turn_ < kInTurnProven)
        ++writes_in_turn_;
}

/// `filled`: whether the host gets what the drive has written to the window.
void TargetConnection::let_go(Slot& slot, bool filled) {
    if (slot.holds_window) nic_.close_window(qp_, slot.window, filled);
    slot.holds_window = false;
    if (slot.holds_message) nic_.release(qp_, slot.token);
    slot.holds_message = false;
}

void TargetConnection::free_slot(std::uint32_t index) {
    Slot& slot = slots_[index];
    if (slot.has_place) give_place(slot);
    if (slot.page != nullptr) shard_->pages().give(std::move(slot.page));
    if (slot.has_page) give_staging(kInCapsuleBytes);
    slot.has_page = slot.busy = false;
    free_.push_back(index);
}

void TargetConnection::answer(std::uint16_t command_id, const Answer& answer) {
    if (state_ >= State::kDraining) return;
    nvme::Completion response{};
    response.dw0 = answer.dw0;
    response.dw1 = answer.dw1;
    response.sq_head = answer.no_sq_flow ? nvme::kNoSqFlow : sq_head();
    response.command_id = command_id;
    response.set_result(answer.status);
    nic_.send(qp_, &response, sizeof response, answer.invalidate_key);
}

/// The command with this id is no longer outstanding.
void TargetConnection::end(std::uint16_t command_id) {
    ids_.toggle(command_id);
    --under_way_;
}

void TargetConnection::refuse(const Capsule& capsule, Status status) {
    counters_.refused.add();
    end(capsule.command.command_id);
    // A key that opened no window may be invalid, so it is not invalidated.
    const std::uint32_t key = status == Status::kDataTransferError ? 0 : capsule.invalidate_key;
    answer(capsule.command.command_id, {.status = status, .invalidate_key = key});
}

void TargetConnection::fail() {
    if (state_ >= State::kDraining) return;
    begin_drain();
    nic_.fail(qp_);
}

void TargetConnection::on_error(rdma::QpNumber) {
    begin_drain();
}

void TargetConnection::begin_drain() {
    if (state_ >= State::kDraining) return;
    state_ = State::kDraining;
    forget_waiting();
    draining_.store(true, std::memory_order_release);  // pairs with the acquire in is_draining()
    owner_.on_draining(*this);
    // The shard polls until the drive holds no command, then announces it. Not done here: this may run inside
    // send() or fail().
    shard_->activate(*this);
}

void TargetConnection::announce_if_quiesced() {
    if (state_ == State::kQuiesced) owner_.on_quiesced(*this);
}

void TargetConnection::attend() {
    if (fail_requested_.exchange(false, std::memory_order_acquire)) fail();
    // Pairs with the release store in answer_connect(): outcome, subsystem and queue are visible.
    if (connecting_ && connect_answered_.exchange(false, std::memory_order_acquire)) finish_connect();
}

void TargetConnection::request_fail() {
    fail_requested_.store(true, std::memory_order_release);  // pairs with the exchange in attend()
    shard_->request_attention();
}

void TargetConnection::answer_connect(const ConnectOutcome& outcome, Subsystem* subsystem,
                                      ssd::NvmeQueue* queue) {
    connect_outcome_ = outcome;
    connect_subsystem_ = subsystem;
    connect_queue_ = queue;
    connect_answered_.store(true, std::memory_order_release);  // pairs with the exchange in attend()
    shard_->request_attention();
}

void TargetConnection::count(const Capsule& capsule) {
    if (kind() == QueueKind::kAdmin) return;
    if (capsule.direction == Direction::kToDrive) counters_.bytes_to_drive.add(capsule.bytes);
    if (capsule.direction == Direction::kToHost) counters_.bytes_to_host.add(capsule.bytes);
    switch (static_cast<nvme::IoOpcode>(capsule.command.opcode)) {
        case nvme::IoOpcode::kFlush:
            return counters_.flushes.add();
        case nvme::IoOpcode::kWrite:
            return counters_.writes.add();
        case nvme::IoOpcode::kRead:
            return counters_.reads.add();
        case nvme::IoOpcode::kWriteZeroes:
            return counters_.write_zeroes.add();
        case nvme::IoOpcode::kDatasetManagement:
            return counters_.trims.add();
    }
}

}  // namespace gnstor::nvmf
