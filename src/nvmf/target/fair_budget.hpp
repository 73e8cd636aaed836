// fair_budget.hpp: an amount (bytes, commands) that connections share fairly: who holds how much, and who is
// next. Pure.
//
// Members (queue pairs) belong to clients. Each member has an assured amount of its own; what it takes beyond
// that comes out of the shared amount. A request that does not fit waits: the requests of a member in order,
// the members of a client round robin, the clients round robin with a quantum of `turn`. So a client's share
// does not grow with its number of queue pairs.
// Invariants
//   * bound: the shared amount taken never exceeds `shared`, and that of one client never `of_client`; not
//     bound: it exceeds `shared` only for a client that is alone, or for one that has less than its equal
//     part;
//   * a request never overtakes an older one of its member; if the next request in turn does not fit into the
//     shared amount, nobody takes of it before that request: many small requests do not starve a large one;
//   * a request that fits its member's assured amount waits only for older requests of that member.
// No allocation unless a request waits. One thread at a time.
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
    std::uint64_t assured = 0;    ///< of each member, in addition to `shared`
    std::uint64_t of_client = 0;  ///< most that one client may take of `shared`, if bound
    std::uint64_t turn = 1;       ///< round-robin quantum of a client: at least one request
    /// False: `shared` is no limit, but above it clients wait for one another; a client that is alone never
    /// waits.
    bool bound = true;
};

class FairBudget {
  public:
    using Member = std::uint32_t;

    explicit FairBudget(const FairBudgetOptions& options) : options_(options) {}

    [[nodiscard]] Member join(const std::string& client);
    /// Moves the member to another client, with all that it holds and waits for.
    void move(Member member, const std::string& client);
    /// Removes the member: returns what it holds, drops what it waits for.
    void leave(Member member);

    /// True: granted. False: the request waits until next() grants it. `amount`: at least 1 and, if the
    /// budget is bound, at most assured + of_client.
    [[nodiscard]] bool take(Member member, std::uint64_t amount);
    /// The same, but on false no request waits.
    [[nodiscard]] bool take_now(Member member, std::uint64_t amount);
    void give(Member member, std::uint64_t amount);
    /// Grants a member's oldest request and returns the member; call it until it returns none.
    [[nodiscard]] std::optional<Member> next();
    /// Drops the member's waiting requests.
    void forget_waiting(Member member);
    /// Whether next() may grant something.
    [[nodiscard]] bool due() const noexcept { return due_; }

    [[nodiscard]] std::uint64_t shared_taken() const noexcept { return taken_; }
    [[nodiscard]] std::uint64_t held(Member member) const { return members_[member].held; }
    [[nodiscard]] std::size_t waiting(Member member) const { return members_[member].waiting.size(); }

  private:
    struct Client {
        std::uint64_t taken = 0;  ///< of the shared amount
        std::uint64_t held = 0;   ///< with the assured amounts
        std::uint32_t members = 0;
        std::deque<Member> line;  ///< members that wait, the next one first
        bool present = false;     ///< holds something or waits
    };
    using Clients = std::map<std::string, Client>;
    struct State {
        Clients::iterator client;
        bool joined = false;
        bool ready = false;  ///< in ready_
        std::uint64_t held = 0;
        std::deque<std::uint64_t> waiting;
    };

    /// The part of `held` that comes out of the shared amount.
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
    std::deque<Client*> turns_;  ///< clients with waiting members; the first is served
    std::deque<Member> ready_;   ///< members whose oldest request fits their assured amount
    std::uint64_t served_ = 0;   ///< granted in the first client's turn
    std::uint64_t taken_ = 0;    ///< of the shared amount
    std::uint32_t present_ = 0;  ///< number of clients that are present
    bool blocked_ = false;       ///< the first in turn waits for the shared amount
    bool due_ = false;
};

}  // namespace gnstor::nvmf
