#include "nvmf/target/offload_shard.hpp"

#include "nvmf/target/connection.hpp"

#include <algorithm>
#include <utility>

namespace gnstor::nvmf {

namespace {
constexpr std::uint32_t kGrantsARound = 64;  // of each budget, in one round

FairBudgetOptions staging_budget(std::uint64_t bytes, std::uint64_t assured) {
    return {.shared = bytes,
            .assured = assured,
            .of_client = bytes / 2,
            .turn = kTransferBytesMax,
            .bound = true};
}
}  // namespace

OffloadShard::OffloadShard(Reactor& reactor, const SharedBudgetOptions& options)
    : reactor_(reactor),
      options_(options),
      staging_(staging_budget(kStagingBytesMin, options.staging_assured_bytes)) {
    reactor_.add(*this);
}

void OffloadShard::stop() {
    if (!std::exchange(stopped_, true)) reactor_.remove(*this);
}

SharedBudget& OffloadShard::staging(const Subsystem& subsystem) {
    const auto budget = staging_budget(options_.staging_bytes, options_.staging_assured_bytes);
    return stagings_.try_emplace(&subsystem, budget).first->second;
}

SharedBudget& OffloadShard::places(const Subsystem& subsystem) {
    const FairBudgetOptions options{.shared = options_.places, .turn = 1, .bound = false};
    return places_.try_emplace(&subsystem, options).first->second;
}

/// Grants waiting requests, clients in turn. A granted command may return budget at once: it is granted again
/// here, or in the next round.
std::uint32_t OffloadShard::grant_waiting() {
    grants_due_ = false;
    std::uint32_t granted = 0;
    const auto serve = [&](SharedBudget& turns, void (TargetConnection::*tell)()) {
        for (std::uint32_t i = 0; i < kGrantsARound; ++i, ++granted) {
            const auto member = turns.budget.next();
            if (!member) return;
            (turns.members[*member]->*tell)();
        }
        grants_due_ = true;
    };
    serve(staging_, &TargetConnection::on_staging_granted);
    for (auto& each : stagings_) serve(each.second, &TargetConnection::on_staging_granted);
    for (auto& each : places_) serve(each.second, &TargetConnection::on_place_granted);
    return granted;
}

std::uint32_t OffloadShard::poll() {
    std::uint32_t work = 0;
    // Pairs with the release store of request_attention: flags set before it are seen.
    if (attention_.load(std::memory_order_relaxed) && attention_.exchange(false, std::memory_order_acquire)) {
        attend();
        ++work;
    }
    if (grants_due_) work += grant_waiting();
    // Completions from drives are in other cores' caches: prefetches them for all connections at once.
    for (const TargetConnection* c = first_active_; c != nullptr; c = c->next_active_) c->prefetch();
    for (const TargetConnection* c = first_active_; c != nullptr; c = c->next_active_) c->prefetch_answer();
    // Connections that become active meanwhile are put at the front, which the loop has passed: they are
    // polled next time.
    TargetConnection** link = &first_active_;
    while (*link != nullptr) {
        TargetConnection& connection = **link;
        work += connection.poll();
        if (connection.wants_polling()) {
            link = &connection.next_active_;
            continue;
        }
        // A message may have been delivered inside poll() and put others in front: find the link again.
        while (*link != &connection) link = &(*link)->next_active_;
        *link = connection.next_active_;
        connection.next_active_ = nullptr;
        connection.active_ = false;
        // The last access: from here on the control thread may free it.
        connection.announce_if_quiesced();
    }
    for (Reactor* drive : to_wake_) drive->wake();
    to_wake_.clear();
    return work;
}

void OffloadShard::wake_soon(Reactor& drive) {
    if (std::ranges::find(to_wake_, &drive) == to_wake_.end()) to_wake_.push_back(&drive);
}

void OffloadShard::attend() {
    const std::lock_guard lock(mutex_);
    for (TargetConnection* connection : all_) connection->attend();
}

void OffloadShard::activate(TargetConnection& connection) {
    if (connection.active_) return;
    connection.active_ = true;
    connection.next_active_ = first_active_;
    first_active_ = &connection;
}

void OffloadShard::add(TargetConnection& connection) {
    const std::lock_guard lock(mutex_);
    all_.push_back(&connection);
}

void OffloadShard::remove(TargetConnection& connection) {
    {
        const std::lock_guard lock(mutex_);
        std::erase(all_, &connection);
    }
    reactor_.run([] {});  // a poll() in progress has returned after this
}

void OffloadShard::request_attention() {
    attention_.store(true, std::memory_order_release);  // pairs with the exchange in poll()
    reactor_.wake();
}

}  // namespace gnstor::nvmf
