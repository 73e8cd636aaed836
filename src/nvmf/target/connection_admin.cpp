// connection_admin.cpp: the commands that a connection answers for the fabric: Connect, properties,
// keep-alive, some features.
//
// Everything else on an admin queue goes to the drive's own. These commands take the subsystem's mutex for a
// few instructions.
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

void Connection::take_fabrics(const Capsule& capsule, const MessageBytes& bytes,
                              const rdma::InboundMessage& message) {
    const auto type = nvme::fabrics_type(capsule.command);
    if (type == nvme::FabricsType::kConnect && state_ == State::kAwaitingConnect) {
        state_ = State::kConnecting;
        join_staging();
        return submit(capsule, bytes, message);  // judge_connect() has the data next
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
    // Asked for before the answer goes out: a Connect that follows the answer finds the old queues on their
    // way out.
    if (outcome.close_io_queues) owner_.on_controller_disabled(*subsystem_, binding_.controller_id);
    if (outcome.shutdown != 0) owner_.on_shutdown(*subsystem_, binding_.controller_id, outcome.shutdown);
    if (!nvme::ok(outcome.status)) return refuse(capsule, outcome.status);
    if (outcome.reset) return reset(capsule);
    end(capsule.command.command_id);
    answer(capsule.command.command_id, {.dw0 = static_cast<std::uint32_t>(outcome.value),
                                        .dw1 = static_cast<std::uint32_t>(outcome.value >> 32)});
}

/// A controller reset (Base 2.0, 3.7.2): event requests end unanswered, features are as at the beginning. The
/// device learns it by the Property Set, which is answered behind all that came before it: from then on their
/// ids and places are free. No host sends a device one: they end here.
void Connection::reset(const Capsule& capsule) {
    for (Slot& slot : slots_) slot.unanswered = slot.unanswered || (slot.busy && slot.event_request);
    to_drive(take_slot(capsule), capsule, nullptr);
}

/// The data of a Connect is in the slot's staging page. What is well formed the control thread decides.
void Connection::judge_connect(std::uint32_t index, const Capsule& capsule, const std::byte* data) {
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

/// The control thread has decided.
void Connection::finish_connect() {
    connecting_ = false;
    // The queue is the connection's even if it is in error by now: it is deleted with it.
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
bool Connection::take_admin(Capsule& capsule) {
    const nvme::Command& command = capsule.command;
    const auto opcode = static_cast<nvme::AdminOpcode>(command.opcode);
    // The floor alone may come from a volume's writer (ARRAY.md, rule 8): the drive looks who that is.
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

/// Abort names a command by queue and id; the drive knows it by the slot's number. Only this queue's commands
/// can be named to the drive; for any other, and for one that is not there, the answer is "not aborted"
/// (Base 2.0, 5.1).
bool Connection::take_abort(Capsule& capsule) {
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
