// connection_admin.cpp: the commands that the target answers itself: Connect, properties, keep-alive, some
// features.
//
// All other commands of an admin queue go to the drive's admin queue. The commands here take the subsystem's
// mutex for a few instructions.
#include "nvmf/target/connection.hpp"

#include <gnstor/base/log.hpp>
#include <gnstor/nvme/fabrics.hpp>
#include <gnstor/nvme/features.hpp>

#include <cstring>

namespace gnstor::nvmf {

using nvme::Status;

namespace {

constexpr std::uint8_t kFirstVendorOpcode = 0xC0;

}  // namespace

void TargetConnection::take_fabrics(const Capsule& capsule, const MessageBytes& bytes,
                                    const rdma::InboundMessage& message) {
    const auto type = nvme::fabrics_type(capsule.command);
    if (type == nvme::FabricsType::kConnect && state_ == State::kAwaitingConnect) {
        state_ = State::kConnecting;
        join_staging();
        return submit(capsule, bytes, message);  // judge_connect() follows, with the data
    }
    nic_.release(message.qp, message.token);
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
    end(capsule.command.command_id);
    answer(capsule.command.command_id, {.dw0 = static_cast<std::uint32_t>(outcome.value),
                                        .dw1 = static_cast<std::uint32_t>(outcome.value >> 32)});
}

/// A controller reset (Base 2.0, 3.7.2): event requests end without a response, features return to their
/// defaults. The Property Set tells the device; the device answers it after the commands before it, and then
/// their ids and places are free. No other Property command reaches a device: the target answers them.
void TargetConnection::reset(const Capsule& capsule) {
    for (Slot& slot : slots_) slot.unanswered = slot.unanswered || (slot.busy && slot.event_request);
    to_drive(take_slot(capsule), capsule, nullptr);
}

/// Parses a Connect, whose data is in the slot's staging page. The control thread decides well-formed ones.
void TargetConnection::judge_connect(std::uint32_t index, const Capsule& capsule, const std::byte* data) {
    ConnectVerdict verdict =
        parse_connect(capsule.command,
                      std::span<const std::byte, sizeof(nvme::ConnectData)>(data, sizeof(nvme::ConnectData)));
    let_go(slots_[index], false);
    free_slot(index);
    if (!nvme::ok(verdict.status)) {
        state_ = State::kAwaitingConnect;
        counters_.refused.add();
        end(capsule.command.command_id);
        answer(capsule.command.command_id,
               {.status = verdict.status, .dw0 = verdict.dw0, .invalidate_key = capsule.invalidate_key});
        return;
    }
    connect_request_ = std::move(verdict.request);
    connect_id_ = capsule.command.command_id;
    connect_key_ = capsule.invalidate_key;
    connecting_ = true;
    owner_.on_connect_command(*this);
}

/// Answers the Connect as the control thread has decided.
void TargetConnection::finish_connect() {
    connecting_ = false;
    // Kept even if the connection is in error by now: the queue is deleted with the connection.
    queue_ = connect_queue_;
    end(connect_id_);
    if (state_ >= State::kDraining) {
        shard_->activate(*this);
        return;
    }
    const bool good = nvme::ok(connect_outcome_.status);
    state_ = good ? State::kReady : State::kAwaitingConnect;
    if (good) {
        binding_ = connect_outcome_.binding;
        serve(connect_subsystem_);
        join_as_host();
        ring_ = std::uint32_t{connect_request_.sq_size} + 1;
    } else {
        counters_.refused.add();
    }
    answer(connect_id_, {.status = connect_outcome_.status,
                         .dw0 = connect_outcome_.dw0,
                         .invalidate_key = connect_key_,
                         .no_sq_flow = good && !binding_.sq_flow});
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
    end(command.command_id);
    answer(command.command_id, {.dw0 = outcome.dw0});
    return true;
}

/// Abort names a command by queue and id; the drive knows it by its slot number. Only this queue's commands
/// can be translated; for any other queue, and for an id that is not outstanding, the response is "not
/// aborted" (Base 2.0, 5.1).
bool TargetConnection::take_abort(Capsule& capsule) {
    const auto queue_id = static_cast<std::uint16_t>(capsule.command.cdw10);
    const auto command_id = static_cast<std::uint16_t>(capsule.command.cdw10 >> 16);
    for (std::uint32_t i = 0; queue_id == 0 && i < slots_.size(); ++i) {
        if (!slots_[i].busy || slots_[i].command_id != command_id) continue;
        capsule.command.cdw10 = i << 16;
        return false;
    }
    end(capsule.command.command_id);
    answer(capsule.command.command_id, {.dw0 = 1});
    return true;
}

}  // namespace gnstor::nvmf
