// fair_budget.hpp: an amount that connections share: who has how much of it, and whose turn is next. Pure.
//
// Members (queue pairs) belong to clients. Each member is assured a part of its own; beyond that it has of
// what is shared, and gives it back. Who finds too little waits: a member's requests in their order, a
// client's members in turn, clients in turn, each turn of a stated amount. So a client has one share, with
// however many queue pairs.
// Invariants
//   * bound: what is shared never exceeds `shared`, of one client never `of_client`; not bound: it does so
//   only where one client is there alone, or for a client that has less than its equal part;
//   * a request never overtakes an older one of its member; where the oldest in turn lacks of what all share,
//   nobody takes of that before it: many small requests do not starve a large one;
//   * what fits a member's assured part waits for nobody but the member's own older requests.
// No allocation where nobody waits. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace gnstor::nvmf {

struct FairBudgetOptions {
    std::uint64_t shared = 0;
    std::uint64_t assured = 0;    ///< of each member, beside what is shared
    std::uint64_t of_client = 0;  ///< what one client may have of what is shared, where it is bound
    std::uint64_t turn = 1;  ///< what a client takes before it is the next one's turn: one request at least
    /// False: `shared` says from when on clients wait for one another; one that is alone never waits.
    bool bound = true;
};

class FairBudget {
  public:
    using Member = std::uint32_t;

    explicit FairBudget(const FairBudgetOptions& options) : options_(options) {}

    [[nodiscard]] Member join(const std::string& client);
    /// From now on it is that client's, with all that it has and waits for.
    void move(Member member, const std::string& client);
    /// It has nothing any more; what it waits for is forgotten.
    void leave(Member member);

    /// True: it has it. False: it waits for it; next() says when it has it. `amount`: at least 1, and where
    /// the budget is bound at most assured + of_client.
    [[nodiscard]] bool take(Member member, std::uint64_t amount);
    /// The same, but it does not wait.
    [[nodiscard]] bool take_now(Member member, std::uint64_t amount);
    void give(Member member, std::uint64_t amount);
    /// Whose oldest request is granted now; until there is none.
    [[nodiscard]] std::optional<Member> next();
    /// Nothing waits for this member any more.
    void forget_waiting(Member member);
    /// A look at next() is worth while.
    [[nodiscard]] bool due() const noexcept { return due_; }

    [[nodiscard]] std::uint64_t shared_taken() const noexcept { return taken_; }
    [[nodiscard]] std::uint64_t held(Member member) const { return members_[member].held; }
    [[nodiscard]] std::size_t waiting(Member member) const { return members_[member].waiting.size(); }

  private:
    struct Client {
        std::uint64_t taken = 0;  ///< of what is shared
        std::uint64_t held = 0;   ///< with what is assured
        std::uint32_t members = 0;
        std::deque<Member> line;  ///< members that wait, whose turn it is first
        bool present = false;     ///< has or wants something
    };
    using Clients = std::map<std::string, Client>;
    struct State {
        Clients::iterator client;
        bool joined = false;
        bool ready = false;  ///< in ready_
        std::uint64_t held = 0;
        std::deque<std::uint64_t> waiting;
    };

    /// What a member with `held` has of what is shared.
    [[nodiscard]] std::uint64_t beyond(std::uint64_t held) const noexcept {
        return held > options_.assured ? held - options_.assured : 0;
    }
    [[nodiscard]] std::uint64_t need(const State& member, std::uint64_t amount) const noexcept {
        return beyond(member.held + amount) - beyond(member.held);
    }
    [[nodiscard]] bool below_equal_part(const Client& client, std::uint64_t more) const noexcept;
    [[nodiscard]] bool fits(const Client& client, std::uint64_t more) const noexcept;
    [[nodiscard]] bool lacks_of_all(const Client& client, std::uint64_t more) const noexcept;
    void hold(State& member, std::uint64_t amount) noexcept;
    void note_presence(Client& client) noexcept;
    void stand_in_line(Member member);
    void leave_line(Member member);
    void grant(Member member);

    const FairBudgetOptions options_;
    Clients clients_;
    std::vector<State> members_;
    std::vector<Member> free_;
    std::deque<Client*> turns_;  ///< clients that have a line; the first has the turn
    std::deque<Member> ready_;   ///< whose oldest request fits their assured part
    std::uint64_t served_ = 0;   ///< in the first one's turn
    std::uint64_t taken_ = 0;    ///< of what is shared
    std::uint32_t present_ = 0;  ///< clients
    bool blocked_ = false;       ///< the first in turn lacks of what all share
    bool due_ = false;
};

}  // namespace gnstor::nvmf
