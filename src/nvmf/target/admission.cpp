#include "nvmf/target/admission.hpp"

#include <gnstor/base/log.hpp>

#include "nvmf/target/offload_shard.hpp"
#include "nvmf/target/subsystem.hpp"

#include <algorithm>
#include <utility>

namespace gnstor::nvmf {

void Admission::join_as_peer(TargetConnection& connection, const std::string& peer, bool windows) {
    if (staging_ != nullptr) return;
    counts_windows_ = windows;
    staging_ = &shard_->staging();
    client_ = "peer " + peer;
    staging_member_ = staging_->join(connection, client_);
}

void Admission::join_as_host(TargetConnection& connection, Subsystem& subsystem, const std::string& host_nqn,
                             QueueKind kind) {
    const std::string client = "host " + host_nqn;
    if (subsystem.controllers.kind() == ControllerKind::kDiscovery) {
        staging_->budget.move(staging_member_, client);
    } else {
        move_staging();
        staging_ = &shard_->staging(subsystem);
        staging_member_ = staging_->join(connection, client);
    }
    if (kind == QueueKind::kIo) {
        places_ = &shard_->places(subsystem);
        place_member_ = places_->join(connection, client);
    }
    client_ = client;
    shard_->request_grants();
}

void Admission::give_staging(std::uint64_t bytes) {
    staging_->budget.give(staging_member_, bytes);
    if (staging_->budget.due()) shard_->request_grants();
}

void Admission::give_place() {
    places_->budget.give(place_member_, 1);
    if (places_->budget.due()) shard_->request_grants();
}

WaitingCommand& Admission::keep(std::uint32_t index, const Capsule& capsule) {
    if (kept_.empty()) kept_.resize(entries_);
    kept_[index].capsule = capsule;
    return kept_[index];
}

std::uint32_t Admission::next_unstaged() {
    const std::uint32_t index = unstaged_.front();
    unstaged_.pop_front();
    return index;
}

std::uint32_t Admission::next_unplaced() {
    const std::uint32_t index = unplaced_.front();
    unplaced_.pop_front();
    return index;
}

void Admission::forget_waiting() {
    if (staging_ != nullptr) staging_->budget.forget_waiting(staging_member_);
    if (places_ != nullptr) places_->budget.forget_waiting(place_member_);
    shard_->request_grants();
}

std::deque<std::uint32_t> Admission::drop_unstaged() {
    return std::exchange(unstaged_, {});
}

std::deque<std::uint32_t> Admission::drop_unplaced() {
    return std::exchange(unplaced_, {});
}

void Admission::leave_staging() {
    SharedBudget* const staging = std::exchange(staging_, nullptr);
    if (staging == nullptr) return;
    // 0 even if the drive keeps event requests until its queue is deleted: these have neither page nor
    // window.
    if (staging->budget.held(staging_member_) != 0)
        log_error("a connection of {} ends but still holds {} bytes of staging memory", client_,
                  staging->budget.held(staging_member_));
    staging->budget.leave(staging_member_);
}

/// The Connect has returned what it held; the window of the last message of an authentication may be waiting
/// for its acknowledgement.
void Admission::move_staging() {
    if (staging_->budget.held(staging_member_) == 0) return leave_staging();
    former_ = std::exchange(staging_, nullptr);
    former_member_ = staging_member_;
}

void Admission::leave_former() {
    if (SharedBudget* const former = std::exchange(former_, nullptr)) former->budget.leave(former_member_);
}

void Admission::window_freed(std::uint32_t room) {
    if (!counts_windows_) return;
    if (former_ != nullptr) {
        const auto held = former_->budget.held(former_member_);
        const auto part = static_cast<std::uint32_t>(std::min<std::uint64_t>(room, held));
        former_->budget.give(former_member_, part);
        if (former_->budget.due()) shard_->request_grants();
        if (part == held) leave_former();
        room -= part;
    }
    if (staging_ != nullptr && room != 0) give_staging(room);
}

void Admission::leave() {
    leave_staging();
    leave_former();
    if (SharedBudget* const places = std::exchange(places_, nullptr)) places->budget.leave(place_member_);
    shard_->request_grants();
}

}  // namespace gnstor::nvmf
