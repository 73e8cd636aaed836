#include "nvmf/target/connection.hpp"

#include <gnstor/base/log.hpp>
#include <gnstor/nvme/fabrics.hpp>
#include <gnstor/nvme/features.hpp>

#include <algorithm>
#include <cstring>
#include <utility>

namespace gnstor::nvmf {

using nvme::Status;

namespace {

constexpr std::uint32_t kReapBudget = 64;  // completions a poll
constexpr std::uint8_t kStatusPhase = 1;
constexpr std::uint8_t kFirstVendorOpcode = 0xC0;

bool is_authentication(nvme::FabricsType type) {
    return type == nvme::FabricsType::kAuthenticationSend ||
           type == nvme::FabricsType::kAuthenticationReceive;
}

bool is_host_set(QueueKind kind, const nvme::Command& command) {
    return kind == QueueKind::kAdmin &&
           command.opcode == static_cast<std::uint8_t>(nvme::AdminOpcode::kHostSet);
}

}  // namespace

TargetConnection::TargetConnection(rdma::SoftNic& nic, Subsystem* subsystem, ConnectionOwner& owner,
                                   const TransportRequest& transport, std::function<std::uint64_t()> now_ns)
    : nic_(nic),
      owner_(owner),
      transport_(transport),
      now_ns_(std::move(now_ns)),
      ring_(transport.entries),
      commands_(transport.entries),
      admission_(transport.entries),
      data_(nic, kind(), admission_, counters_) {
    serve(subsystem);
}

/// Sets the connection's subsystem; null: not known yet.
void TargetConnection::serve(Subsystem* subsystem) {
    subsystem_ = subsystem;
    if (subsystem == nullptr) return;
    drive_reactor_ = subsystem->config.drive_reactor;
    const ssd::NvmeDevice* const device = subsystem->config.device;
    commands_.set_drive(device != nullptr && device->is_timed());
    if (device != nullptr) dialect_ = device->dialect();
}

void TargetConnection::attach(rdma::QpNumber qp, OffloadShard& shard) {
    qp_ = qp;
    shard_ = &shard;
    admission_.attach(shard);
    data_.attach(qp, shard.pages());
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
    if (parsed.verdict == Verdict::kBroken || commands_.full()) {
        if (parsed.verdict != Verdict::kBroken) counters_.malformed.add();
        nic_.release(message.qp, message.token);
        broke_rules_ = true;
        fail();
        return;
    }
    take(parsed, bytes, message);
}

std::uint32_t TargetConnection::fetch_bytes(const rdma::InboundMessage& message) const {
    const MessageBytes bytes(std::span(message.segments, message.segment_count));
    return CommandData::fetch_bytes(parse_capsule(bytes, kind(), dialect_));
}

void TargetConnection::take(const ParsedCapsule& parsed, const MessageBytes& bytes,
                            const rdma::InboundMessage& message) {
    ++received_;
    const Capsule& capsule = parsed.capsule;
    const std::uint16_t id = capsule.command.command_id;
    if (commands_.is_outstanding(id)) {
        counters_.malformed.add();
        counters_.refused.add();
        nic_.release(message.qp, message.token);
        // The outstanding command keeps the id: this response is not its own, so it frees nothing.
        answer(id, {.status = Status::kCommandIdConflict});
        return;
    }
    commands_.begin(id);
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
        // A connection begins with Connect (Base 2.0, 6.3).
        refuse(capsule, state_ == State::kAuthenticating ? Status::kAuthenticationRequired
                                                         : Status::kCommandSequenceError);
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

void TargetConnection::submit(const Capsule& capsule, const MessageBytes& bytes,
                              const rdma::InboundMessage& message) {
    const std::uint32_t index = commands_.take(capsule);
    CommandEntry& entry = commands_[index];
    entry.token = message.token;
    entry.holds_message = true;

    const std::uint32_t need = data_.staging_need(entry, capsule, bytes, commands_.writes_in_order());
    if (need == 0 || admission_.take_staging(need)) return begin(index, capsule, bytes);
    counters_.waits_for_memory.add();
    admission_.wait_for_staging(index, capsule).message = message;
    if (capsule.payload != Payload::kInCapsule) data_.release_message(entry);
}

/// The command has its staging memory: makes its data reachable.
void TargetConnection::begin(std::uint32_t index, const Capsule& capsule, const MessageBytes& bytes) {
    CommandEntry& entry = commands_[index];
    std::byte* data = nullptr;
    const Status placed = data_.place(entry, capsule, bytes, data);
    if (!nvme::ok(placed)) return give_back(index, capsule, placed);
    if (!entry.holds_window || entry.window.ready) return hand_over(index, capsule, data);
    admission_.keep(index, capsule);
    data_.await_window(index);
}

void TargetConnection::on_staging_granted() {
    const std::uint32_t index = admission_.next_unstaged();
    const WaitingCommand granted = admission_.kept(index);
    const std::uint32_t segments = commands_[index].holds_message ? granted.message.segment_count : 0;
    begin(index, granted.capsule, MessageBytes(std::span(granted.message.segments, segments)));
}

void TargetConnection::on_window_ready(rdma::QpNumber, std::uint64_t cookie, bool good) {
    const auto index = data_.filled(commands_, cookie);
    if (!index) {
        log_error("queue pair {:#x}: the NIC reports data in a memory window that no command waits for", qp_);
        return;
    }
    const Capsule capsule = admission_.kept(*index).capsule;
    if (good && state_ < State::kDraining)
        return hand_over(*index, capsule, data_.take_fetched(commands_[*index], capsule));
    give_back(*index, capsule, Status::kDataTransferError);
}

void TargetConnection::on_window_freed(rdma::QpNumber, std::uint32_t room) {
    admission_.window_freed(room);
}

/// The data is reachable: a Connect goes to judge_connect(), what the control thread answers goes there, any
/// other command to the drive.
void TargetConnection::hand_over(std::uint32_t index, const Capsule& capsule, std::byte* data) {
    if (is_fabrics(capsule.command) && nvme::fabrics_type(capsule.command) == nvme::FabricsType::kConnect)
        return judge_connect(index, capsule, data);
    if (is_fabrics(capsule.command) || is_host_set(kind(), capsule.command))
        return to_control(index, capsule, data);
    if (admission_.counts_places()) {
        if (!admission_.take_place()) {
            counters_.waits_for_turn.add();
            return admission_.wait_for_place(index, capsule, data);
        }
        commands_[index].has_place = true;
    }
    to_drive(index, capsule, data);
}

void TargetConnection::on_place_granted() {
    const std::uint32_t index = admission_.next_unplaced();
    commands_[index].has_place = true;
    const WaitingCommand granted = admission_.kept(index);
    to_drive(index, granted.capsule, granted.data);
}

void TargetConnection::to_drive(std::uint32_t index, const Capsule& capsule, std::byte* data) {
    CommandEntry& entry = commands_[index];
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
    commands_.to_drive(entry,
                       kind() == QueueKind::kAdmin &&
                           entry.opcode == static_cast<std::uint8_t>(nvme::AdminOpcode::kAsyncEventRequest));
    shard_->activate(*this);
    if (drive_reactor_ != nullptr) shard_->wake_soon(*drive_reactor_);
}

/// Refuses a command that did not reach the drive. After a Connect whose data could not be fetched the host
/// may send another.
void TargetConnection::give_back(std::uint32_t index, const Capsule& capsule, Status status) {
    if (state_ == State::kConnecting && is_fabrics(capsule.command)) state_ = State::kAwaitingConnect;
    if (is_fabrics(capsule.command) && is_authentication(nvme::fabrics_type(capsule.command)))
        authentication_under_way_ = false;
    data_.release(commands_[index], false);
    free_entry(index);
    refuse(capsule, status);
}

void TargetConnection::prefetch_answer() const {
    std::uint16_t index = 0;
    if (queue_ == nullptr || !queue_->peek_completion(index)) return;
    if (index < commands_.size()) {
        const auto* const entry = reinterpret_cast<const std::byte*>(&commands_[index]);
        __builtin_prefetch(entry);
        __builtin_prefetch(entry + sizeof(CommandEntry) - 1);
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
    if (commands_.drained() && !data_.awaits_windows() && !handshake_.pending() && !control_.pending()) {
        admission_.leave();
        state_ = State::kQuiesced;
    }
    return work;
}

void TargetConnection::finish(const nvme::Completion& completion) {
    const std::uint32_t index = completion.command_id;
    if (!commands_.is_busy(index)) {
        log_error("drive {} completed a command that it was not given (tag {})", subsystem_->config.nqn,
                  index);
        return;
    }
    CommandEntry& entry = commands_[index];
    const bool good = nvme::ok(completion.result());
    if (good)
        complete_data(entry);
    else
        counters_.drive_errors.add();
    commands_.completed(entry);
    // The window is closed before the response is sent: RDMA WRITE before SEND, so that the completion
    // implies the data.
    data_.release(entry, good);
    const std::uint16_t id = entry.command_id;
    const std::uint32_t invalidate_key = entry.invalidate_key;
    const std::uint32_t written = entry.fills_window && good ? entry.bytes : 0;
    const bool unanswered = entry.unanswered;
    free_entry(index);
    commands_.end(id);
    if (unanswered || state_ >= State::kDraining) return;
    // A completion queue entry (Base 2.0, 3.3.3.2) in dwords, as the NIC will load it: narrower stores would
    // stall that load.
    const std::uint32_t response[4] = {
        completion.dw0, completion.dw1, sq_head(),
        id | (static_cast<std::uint32_t>(completion.status & ~kStatusPhase) << 16)};
    static_assert(sizeof response == sizeof(nvme::Completion));
    nic_.send(qp_, response, sizeof response, invalidate_key, written);
}

/// Fills in what only the target knows of some admin commands' data.
void TargetConnection::complete_data(CommandEntry& entry) {
    if (entry.completes_identify) {
        auto& identify = *reinterpret_cast<nvme::IdentifyController*>(entry.page.get());
        {
            const std::lock_guard lock(subsystem_->mutex);
            subsystem_->controllers.complete_identify(binding_.controller_id, identify);
        }
        std::memcpy(entry.window.data, &identify, entry.bytes);
    }
    if (entry.completes_counters) {
        owner_.add_counters(*subsystem_, *reinterpret_cast<nvme::SsdCountersLog*>(entry.page.get()));
        std::memcpy(entry.window.data, entry.page.get(), entry.bytes);
    }
}

void TargetConnection::free_entry(std::uint32_t index) {
    CommandEntry& entry = commands_[index];
    if (std::exchange(entry.has_place, false)) admission_.give_place();
    data_.release_page(entry);
    commands_.give(index);
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

void TargetConnection::refuse(const Capsule& capsule, Status status) {
    counters_.refused.add();
    commands_.end(capsule.command.command_id);
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
    admission_.forget_waiting();
    draining_.store(true, std::memory_order_release);  // pairs with the acquire in is_draining()
    owner_.on_draining(*this);
    // The shard polls until the drive holds no command, then announces it. Not done here: this may run inside
    // send() or fail().
    shard_->activate(*this);
}

/// Draining: refuses the commands that waited.
void TargetConnection::drop_waiting() {
    for (const std::uint32_t index : admission_.drop_unstaged()) {
        commands_[index].has_page = false;  // it was never granted
        give_back(index, Capsule(admission_.kept(index).capsule), Status::kInternalError);
    }
    for (const std::uint32_t index : admission_.drop_unplaced())
        give_back(index, Capsule(admission_.kept(index).capsule), Status::kInternalError);
}

void TargetConnection::announce_if_quiesced() {
    if (state_ == State::kQuiesced) owner_.on_quiesced(*this);
}

void TargetConnection::attend() {
    if (fail_requested_.exchange(false, std::memory_order_acquire)) fail();
    if (const auto* const decided = handshake_.take_answer()) finish_connect(*decided);
    if (const auto* const reply = control_.take_reply()) finish_control_command(*reply);
}

void TargetConnection::request_fail() {
    fail_requested_.store(true, std::memory_order_release);  // pairs with the exchange in attend()
    shard_->request_attention();
}

void TargetConnection::answer_control_command(ControlCommand::Reply reply) {
    control_.reply(std::move(reply));
    shard_->request_attention();
}

void TargetConnection::answer_connect(const ConnectOutcome& outcome, Subsystem* subsystem,
                                      ssd::NvmeQueue* queue) {
    handshake_.answer(outcome, subsystem, queue);
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

// The commands that the target answers itself: Connect, properties, keep-alive, some features. All other
// commands of an admin queue go to the drive's admin queue. These here take the subsystem's mutex for a few
// instructions.

void TargetConnection::take_fabrics(const Capsule& capsule, const MessageBytes& bytes,
                                    const rdma::InboundMessage& message) {
    const auto type = nvme::fabrics_type(capsule.command);
    if (type == nvme::FabricsType::kConnect && state_ == State::kAwaitingConnect) {
        state_ = State::kConnecting;
        admission_.join_as_peer(*this, record.peer, nic_.stages_windows(qp_));
        return submit(capsule, bytes, message);  // judge_connect() follows, with the data
    }
    if (is_authentication(type) && authenticates_ && !authentication_under_way_) {
        authentication_under_way_ = true;
        return submit(capsule, bytes, message);  // to_control() follows, with the data
    }
    nic_.release(message.qp, message.token);
    if (is_authentication(type))
        return refuse(capsule, authenticates_ ? Status::kCommandSequenceError : Status::kInvalidOpcode);
    if (type != nvme::FabricsType::kConnect && state_ == State::kAuthenticating)
        return refuse(capsule, Status::kAuthenticationRequired);
    if (type == nvme::FabricsType::kConnect || state_ != State::kReady)
        return refuse(capsule, Status::kCommandSequenceError);
    // Properties belong to the admin queue.
    if (kind() != QueueKind::kAdmin) return refuse(capsule, Status::kInvalidOpcode);
    PropertyOutcome outcome;
    {
        const std::lock_guard lock(subsystem_->mutex);
        outcome = type == nvme::FabricsType::kPropertyGet
                      ? subsystem_->controllers.property_get(binding_.controller_id, capsule.command)
                      : subsystem_->controllers.property_set(binding_.controller_id, capsule.command);
    }
    // Requested before the response is sent: a Connect that follows it finds the old queues closing.
    if (outcome.close_io_queues) owner_.on_controller_disabled(*subsystem_, binding_.controller_id);
    if (outcome.shutdown != 0) owner_.on_shutdown(*subsystem_, binding_.controller_id, outcome.shutdown);
    if (!nvme::ok(outcome.status)) return refuse(capsule, outcome.status);
    if (outcome.reset) return reset(capsule);
    commands_.end(capsule.command.command_id);
    answer(capsule.command.command_id, {.dw0 = static_cast<std::uint32_t>(outcome.value),
                                        .dw1 = static_cast<std::uint32_t>(outcome.value >> 32)});
}

/// A controller reset (Base 2.0, 3.7.2): event requests end without a response, features return to their
/// defaults. The Property Set tells the device; the device answers it after the commands before it, and then
/// their ids and places are free. No other Property command reaches a device: the target answers them.
void TargetConnection::reset(const Capsule& capsule) {
    commands_.silence_event_requests();
    to_drive(commands_.take(capsule), capsule, nullptr);
}

/// Parses a Connect, whose data is in the entry's staging page. The control thread decides well-formed ones.
void TargetConnection::judge_connect(std::uint32_t index, const Capsule& capsule, const std::byte* data) {
    ConnectVerdict verdict =
        parse_connect(capsule.command,
                      std::span<const std::byte, sizeof(nvme::ConnectData)>(data, sizeof(nvme::ConnectData)));
    data_.release(commands_[index], false);
    free_entry(index);
    if (!nvme::ok(verdict.status)) {
        state_ = State::kAwaitingConnect;
        counters_.refused.add();
        commands_.end(capsule.command.command_id);
        answer(capsule.command.command_id,
               {.status = verdict.status, .dw0 = verdict.dw0, .invalidate_key = capsule.invalidate_key});
        return;
    }
    handshake_.ask(std::move(verdict.request), capsule.command.command_id, capsule.invalidate_key);
    owner_.on_connect_command(*this);
}

/// Answers the Connect as the control thread has decided.
void TargetConnection::finish_connect(const ConnectHandshake::Answer& decided) {
    // Kept even if the connection is in error by now: the queue is deleted with the connection.
    queue_ = decided.queue;
    commands_.end(handshake_.command_id());
    if (state_ >= State::kDraining) {
        shard_->activate(*this);
        return;
    }
    const bool good = nvme::ok(decided.outcome.status);
    state_ = State::kAwaitingConnect;
    if (good) {
        binding_ = decided.outcome.binding;
        serve(decided.subsystem);
        ring_ = std::uint32_t{handshake_.request().sq_size} + 1;
        authenticates_ = (decided.outcome.dw0 & nvme::kConnectAuthenticate) != 0;
        state_ = State::kAuthenticating;
        if (!authenticates_) become_ready();
    } else {
        counters_.refused.add();
    }
    answer(handshake_.command_id(), {.status = decided.outcome.status,
                                     .dw0 = decided.outcome.dw0,
                                     .invalidate_key = handshake_.invalidate_key(),
                                     .no_sq_flow = good && !binding_.sq_flow});
}

/// From now on the host is who it says it is.
void TargetConnection::become_ready() {
    // Until now one command at a time was taken, and it has ended: nothing is held of the peer's budget but
    // windows that the NIC has yet to free.
    state_ = State::kReady;
    admission_.join_as_host(*this, *subsystem_, handshake_.request().host_nqn, kind());
}

/// Passes a command and its data to the control thread. An answer with data keeps its entry, whose window it
/// will fill.
void TargetConnection::to_control(std::uint32_t index, const Capsule& capsule, std::byte* data) {
    if (control_.pending()) return give_back(index, capsule, Status::kCommandSequenceError);
    ControlCommand::Request request{capsule.command, {}, 0};
    std::optional<std::uint32_t> kept;
    if (capsule.direction == Direction::kToHost) {
        request.room = capsule.bytes;
        kept = index;
    } else {
        if (data != nullptr) request.data.assign(data, data + capsule.bytes);
        data_.release(commands_[index], false);
        free_entry(index);
    }
    control_.ask(std::move(request), kept, capsule.invalidate_key);
    owner_.on_control_command(*this);
}

void TargetConnection::finish_control_command(const ControlCommand::Reply& reply) {
    const bool good = nvme::ok(reply.status);
    if (is_fabrics(control_.request().command)) authentication_under_way_ = false;
    if (const auto index = control_.entry()) {
        CommandEntry& entry = commands_[*index];
        if (good && state_ < State::kDraining) {
            // The rest must not expose what NIC memory held before.
            std::fill_n(entry.window.data, entry.bytes, std::byte{0});
            std::copy_n(reply.data.data(), std::min<std::size_t>(reply.data.size(), entry.bytes),
                        entry.window.data);
        }
        data_.release(entry, good);
        free_entry(*index);
    }
    commands_.end(control_.command_id());
    if (state_ >= State::kDraining) {
        shard_->activate(*this);
        return;
    }
    if (!good) counters_.refused.add();
    if (reply.authenticated && state_ == State::kAuthenticating) become_ready();
    answer(control_.command_id(), {.status = reply.status, .invalidate_key = control_.invalidate_key()});
}

/// True: answered here. False: the (perhaps rewritten) command goes to the drive.
bool TargetConnection::take_admin(Capsule& capsule) {
    const nvme::Command& command = capsule.command;
    const auto opcode = static_cast<nvme::AdminOpcode>(command.opcode);
    // Of the vendor commands only FLOOR may come from a volume's writer (docs/array.md, rule 8); the drive
    // checks it.
    if (command.opcode >= kFirstVendorOpcode && opcode != nvme::AdminOpcode::kFloor && !binding_.privileged) {
        refuse(capsule, Status::kAccessDenied);
        return true;
    }
    FeatureOutcome outcome;
    {
        const std::lock_guard lock(subsystem_->mutex);
        Controllers& controllers = subsystem_->controllers;
        const std::uint16_t id = binding_.controller_id;
        controllers.heard(id, now_ns_());
        if (opcode == nvme::AdminOpcode::kKeepAlive) {
            outcome = {controllers.keep_alive(id, now_ns_()), 0, true};
        } else if (!controllers.ready(id)) {
            outcome = {Status::kCommandSequenceError, 0, true};  // not enabled (Base 2.0, 3.5.1)
        } else if (opcode == nvme::AdminOpcode::kSetFeatures) {
            outcome = controllers.set_feature(id, command, now_ns_());
        } else if (opcode == nvme::AdminOpcode::kGetFeatures) {
            outcome = controllers.get_feature(id, command);
        }
    }
    if (opcode == nvme::AdminOpcode::kAbort && !outcome.handled) return take_abort(capsule);
    if (!outcome.handled) return false;
    if (!nvme::ok(outcome.status)) {
        refuse(capsule, outcome.status);
        return true;
    }
    commands_.end(command.command_id);
    answer(command.command_id, {.dw0 = outcome.dw0});
    return true;
}

/// Abort names a command by queue and id; the drive knows it by the index of its entry. Only this queue's
/// commands can be translated; for any other queue, and for an id that is not outstanding, the response is
/// "not aborted" (Base 2.0, 5.1).
bool TargetConnection::take_abort(Capsule& capsule) {
    const auto queue_id = static_cast<std::uint16_t>(capsule.command.cdw10);
    const auto command_id = static_cast<std::uint16_t>(capsule.command.cdw10 >> 16);
    if (const auto index = commands_.find(command_id); queue_id == 0 && index) {
        capsule.command.cdw10 = *index << 16;
        return false;
    }
    commands_.end(capsule.command.command_id);
    answer(capsule.command.command_id, {.dw0 = 1});
    return true;
}

}  // namespace gnstor::nvmf
