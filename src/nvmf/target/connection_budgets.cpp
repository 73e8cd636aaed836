// connection_budgets.cpp: a connection's share of staging memory and of places at the drive, and its commands
// that wait for either.
#include "nvmf/target/connection.hpp"

#include <gnstor/base/log.hpp>

#include <utility>

namespace gnstor::nvmf {

TargetConnection::Parked& TargetConnection::park(std::uint32_t index, const Capsule& capsule) {
    if (parked_.empty()) parked_.resize(slots_.size());  // allocated once, when a command first waits
    parked_[index].capsule = capsule;
    return parked_[index];
}

std::byte* TargetConnection::page(Slot& slot) {
    if (slot.page == nullptr) slot.page = shard_->pages().take();
    return slot.page.get();
}

/// Before Connect, when the client is unknown: the peer's address is the budget's client.
void TargetConnection::join_staging() {
    if (staging_ != nullptr) return;
    stages_windows_ = nic_.stages_windows(qp_);
    staging_ = &shard_->staging();
    staging_member_ = staging_->join(*this, "peer " + record.peer);
}

/// After Connect: the host NQN is the budgets' client.
void TargetConnection::join_as_host() {
    const std::string client = "host " + connect_request_.host_nqn;
    if (subsystem_->controllers.kind() == ControllerKind::kDiscovery) {
        staging_->budget.move(staging_member_, client);
    } else {
        leave_staging();  // the Connect has returned what it held
        staging_ = &shard_->staging(*subsystem_);
        staging_member_ = staging_->join(*this, client);
    }
    if (kind() == QueueKind::kIo) {
        places_ = &shard_->places(*subsystem_);
        place_member_ = places_->join(*this, client);
    }
    shard_->request_grants();
}

void TargetConnection::give_staging(std::uint64_t bytes) {
    FairBudget& budget = staging_->budget;
    budget.give(staging_member_, bytes);
    if (budget.due()) shard_->request_grants();
}

void TargetConnection::give_place(Slot& slot) {
    slot.has_place = false;
    places_->budget.give(place_member_, 1);
    if (places_->budget.due()) shard_->request_grants();
}

void TargetConnection::on_window_freed(rdma::QpNumber, std::uint32_t room) {
    if (staging_ != nullptr && stages_windows_) give_staging(room);
}

void TargetConnection::on_staging_granted() {
    const std::uint32_t index = unstaged_.front();
    unstaged_.pop_front();
    const Parked parked = parked_[index];
    const std::uint32_t segments = slots_[index].holds_message ? parked.message.segment_count : 0;
    begin(index, parked.capsule, MessageBytes(std::span(parked.message.segments, segments)));
}

void TargetConnection::on_place_granted() {
    const std::uint32_t index = unplaced_.front();
    unplaced_.pop_front();
    slots_[index].has_place = true;
    const Parked parked = parked_[index];
    to_drive(index, parked.capsule, parked.data);
}

/// Cancels waiting requests: nothing is granted any more. May run inside any call; drop_waiting() follows.
void TargetConnection::forget_waiting() {
    if (staging_ != nullptr) staging_->budget.forget_waiting(staging_member_);
    if (places_ != nullptr) places_->budget.forget_waiting(place_member_);
    shard_->request_grants();
}

/// Draining: refuses the commands that waited.
void TargetConnection::drop_waiting() {
    for (const std::uint32_t index : std::exchange(unstaged_, {})) {
        slots_[index].has_page = false;  // it was never granted
        give_back(index, Capsule(parked_[index].capsule), nvme::Status::kInternalError);
    }
    for (const std::uint32_t index : std::exchange(unplaced_, {}))
        give_back(index, Capsule(parked_[index].capsule), nvme::Status::kInternalError);
}

void TargetConnection::leave_staging() {
    SharedBudget* const staging = std::exchange(staging_, nullptr);
    if (staging == nullptr) return;
    // 0 even if the drive keeps event requests until its queue is deleted: these have neither page nor
    // window.
    if (staging->budget.held(staging_member_) != 0)
        log_error("queue pair {:#x}: its connection ends but still holds {} bytes of staging memory", qp_,
                  staging->budget.held(staging_member_));
    staging->budget.leave(staging_member_);
}

void TargetConnection::leave_budgets() {
    leave_staging();
    if (SharedBudget* const places = std::exchange(places_, nullptr)) places->budget.leave(place_member_);
    shard_->request_grants();
}

}  // namespace gnstor::nvmf
