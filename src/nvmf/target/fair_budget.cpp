#include "nvmf/target/fair_budget.hpp"

#include <algorithm>

namespace gnstor::nvmf {

FairBudget::Member FairBudget::join(const std::string& client) {
    Member member = static_cast<Member>(members_.size());
    if (free_.empty()) {
        members_.emplace_back();
    } else {
        member = free_.back();
        free_.pop_back();
    }
    State& state = members_[member];
    state = State{};
    state.client = clients_.try_emplace(client).first;
    state.joined = true;
    ++state.client->second.members;
    return member;
}

void FairBudget::move(Member member, const std::string& client) {
    State& state = members_[member];
    if (state.client->first == client) return;
    const bool waits = !state.waiting.empty();
    if (waits) leave_line(member);
    const auto from = state.client;
    const std::uint64_t shared = beyond(state.held);
    state.client = clients_.try_emplace(client).first;
    Client& to = state.client->second;
    ++to.members;
    to.held += state.held;
    to.taken += shared;
    from->second.held -= state.held;
    from->second.taken -= shared;
    note_presence(from->second);
    note_presence(to);
    if (--from->second.members == 0) clients_.erase(from);
    if (waits) stand_in_line(member);
    due_ = !turns_.empty();
}

void FairBudget::leave(Member member) {
    forget_waiting(member);
    State& state = members_[member];
    if (state.held != 0) give(member, state.held);
    if (--state.client->second.members == 0) clients_.erase(state.client);
    if (state.ready) std::erase(ready_, member);
    state = State{};
    free_.push_back(member);
}

bool FairBudget::below_equal_part(const Client& client, std::uint64_t more) const noexcept {
    const std::uint64_t part = options_.shared / std::max(present_ + (client.present ? 0 : 1), 1u);
    return client.taken + more <= std::max<std::uint64_t>(part, 1);
}

bool FairBudget::fits(const Client& client, std::uint64_t more) const noexcept {
    if (options_.bound) return taken_ + more <= options_.shared && client.taken + more <= options_.of_client;
    const bool alone = present_ == 0 || (present_ == 1 && client.present);
    return alone || taken_ + more <= options_.shared || below_equal_part(client, more);
}

/// Whether it does not fit because the shared amount is used up, not because of its client's limit: then
/// others must wait too.
bool FairBudget::lacks_of_all(const Client& client, std::uint64_t more) const noexcept {
    return options_.bound && taken_ + more > options_.shared && client.taken + more <= options_.of_client;
}

void FairBudget::note_presence(Client& client) noexcept {
    const bool present = client.held != 0 || !client.line.empty();
    if (present == client.present) return;
    client.present = present;
    present_ = present ? present_ + 1 : present_ - 1;
}

void FairBudget::hold(State& member, std::uint64_t amount) noexcept {
    Client& client = member.client->second;
    const std::uint64_t more = need(member, amount);
    member.held += amount;
    client.held += amount;
    client.taken += more;
    taken_ += more;
    note_presence(client);
}

bool FairBudget::take_now(Member member, std::uint64_t amount) {
    State& state = members_[member];
    if (!state.waiting.empty()) return false;
    const std::uint64_t more = need(state, amount);
    if (more != 0) {
        const Client& client = state.client->second;
        // Older requests go first; but if not bound, a client below its equal part never waits for one above
        // it.
        const bool passes = !blocked_ || (!options_.bound && below_equal_part(client, more));
        if (!client.line.empty() || !passes || !fits(client, more)) return false;
    }
    hold(state, amount);
    return true;
}

bool FairBudget::take(Member member, std::uint64_t amount) {
    if (take_now(member, amount)) return true;
    State& state = members_[member];
    state.waiting.push_back(amount);
    if (state.waiting.size() == 1) stand_in_line(member);
    const Client& client = state.client->second;
    if (!options_.bound || lacks_of_all(client, need(state, state.waiting.front()))) blocked_ = true;
    return false;
}

void FairBudget::give(Member member, std::uint64_t amount) {
    State& state = members_[member];
    Client& client = state.client->second;
    const std::uint64_t less = beyond(state.held) - beyond(state.held - amount);
    state.held -= amount;
    client.held -= amount;
    client.taken -= less;
    taken_ -= less;
    note_presence(client);
    if (turns_.empty()) return;
    due_ = true;
    if (state.waiting.empty() || state.ready || need(state, state.waiting.front()) != 0) return;
    state.ready = true;
    ready_.push_back(member);
}

void FairBudget::stand_in_line(Member member) {
    Client& client = members_[member].client->second;
    if (client.line.empty()) turns_.push_back(&client);
    client.line.push_back(member);
    note_presence(client);
}

void FairBudget::leave_line(Member member) {
    Client& client = members_[member].client->second;
    std::erase(client.line, member);
    if (client.line.empty()) {
        if (turns_.front() == &client) served_ = 0;
        std::erase(turns_, &client);
    }
    note_presence(client);
    if (turns_.empty()) blocked_ = false;
}

void FairBudget::forget_waiting(Member member) {
    State& state = members_[member];
    if (state.waiting.empty()) return;
    state.waiting.clear();
    leave_line(member);
    due_ = !turns_.empty();
}

/// Grants the member's oldest request; then the next member of its client is in turn.
void FairBudget::grant(Member member) {
    State& state = members_[member];
    hold(state, state.waiting.front());
    state.waiting.pop_front();
    if (state.waiting.empty()) return leave_line(member);
    std::deque<Member>& line = state.client->second.line;
    std::erase(line, member);
    line.push_back(member);
}

std::optional<FairBudget::Member> FairBudget::next() {
    while (!ready_.empty()) {
        const Member member = ready_.front();
        ready_.pop_front();
        State& state = members_[member];
        state.ready = false;
        if (state.waiting.empty() || need(state, state.waiting.front()) != 0) continue;
        grant(member);
        return member;
    }
    for (std::size_t skipped = 0; skipped < turns_.size(); ++skipped) {
        Client* const client = turns_.front();
        const Member member = client->line.front();
        const State& state = members_[member];
        const std::uint64_t amount = state.waiting.front();
        const std::uint64_t more = need(state, amount);
        if (more == 0 || fits(*client, more)) {
            const std::size_t clients = turns_.size();
            grant(member);
            if (turns_.size() == clients && (served_ += amount) >= options_.turn) {
                turns_.push_back(turns_.front());
                turns_.pop_front();
                served_ = 0;
            }
            return member;
        }
        if (lacks_of_all(*client, more)) {
            blocked_ = true;
            due_ = false;
            return std::nullopt;
        }
        // This client is at its limit: the next one is in turn.
        turns_.push_back(client);
        turns_.pop_front();
        served_ = 0;
    }
    // Bound: every client that waits is at its own limit. Not bound: every one has its equal part.
    blocked_ = !options_.bound && !turns_.empty();
    due_ = false;
    return std::nullopt;
}

}  // namespace gnstor::nvmf
