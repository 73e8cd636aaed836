// fair_budget_test.cpp: what is shared is never exceeded, everybody's turn comes, and a client with many
// queue pairs has one share. Random histories beside a plain model; exact histories for turns.
#include "nvmf/target/fair_budget.hpp"

#include <gnstor/base/hash.hpp>

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "support/count.hpp"
#include "support/seed.hpp"

namespace gnstor::nvmf {
namespace {

using Member = FairBudget::Member;

struct Loan {
    Member member;
    std::uint64_t amount;
};

/// Members of several clients that take, wait, give back, change clients and leave, at random.
class Crowd {
  public:
    Crowd(const FairBudgetOptions& options, std::uint64_t seed, bool changes)
        : options_(options), budget_(options), random_(seed), changes_(changes) {}

    void step() {
        switch (random_.below(64)) {
            case 0:
                return join();
            case 1:
                return leave();
            case 2:
                return changes_ ? change() : join();
            default:
                break;
        }
        if (random_.below(5) < 3)
            take();
        else
            give();
        if (random_.below(3) == 0) serve();
        check();
    }
    /// Everything comes back, and everybody has had what was asked for.
    void finish() {
        for (std::size_t waiting = 1; waiting != 0;) {
            serve();
            waiting = 0;
            for (const auto& [member, asked] : asked_) waiting += asked.size();
            ASSERT_TRUE(waiting == 0 || !loans_.empty()) << "a member waits although no budget is lent";
            while (!loans_.empty()) give();
            check();
        }
        for (const auto& [member, asked] : asked_) ASSERT_EQ(budget_.held(member), 0u);
        EXPECT_EQ(budget_.shared_taken(), 0u);
    }
    std::uint64_t waits = 0, grants = 0;

  private:
    std::string a_client() { return "client " + std::to_string(random_.below(5)); }
    Member a_member() {
        auto at = asked_.begin();
        std::advance(at, static_cast<std::ptrdiff_t>(random_.below(asked_.size())));
        return at->first;
    }
    void join() {
        if (asked_.size() > 40) return;
        const std::string client = a_client();
        const Member member = budget_.join(client);
        ASSERT_FALSE(asked_.contains(member));
        asked_[member];
        client_[member] = client;
    }
    void leave() {
        if (asked_.empty()) return;
        const Member member = a_member();
        std::erase_if(loans_, [&](const Loan& loan) { return loan.member == member; });
        budget_.leave(member);
        asked_.erase(member);
        client_.erase(member);
    }
    void change() {
        if (asked_.empty()) return;
        const Member member = a_member();
        changed_ = true;
        client_[member] = a_client();
        budget_.move(member, client_[member]);
    }
    void take() {
        if (asked_.empty()) return;
        const Member member = a_member();
        const std::uint64_t amount = 1 + random_.below(random_.below(4) == 0 ? 40 : 4);
        if (budget_.take(member, amount)) {
            ASSERT_TRUE(asked_[member].empty()) << "a request overtook an older one of the same member";
            loans_.push_back({member, amount});
        } else {
            asked_[member].push_back(amount);
            ++waits;
        }
    }
    void give() {
        if (loans_.empty()) return;
        const std::size_t at = random_.below(loans_.size());
        budget_.give(loans_[at].member, loans_[at].amount);
        loans_.erase(loans_.begin() + static_cast<std::ptrdiff_t>(at));
    }
    void serve() {
        while (const auto member = budget_.next()) {
            ASSERT_FALSE(asked_[*member].empty());
            loans_.push_back({*member, asked_[*member].front()});
            asked_[*member].erase(asked_[*member].begin());
            ++grants;
        }
    }
    /// By what was lent, not by what the budget says of itself.
    void check() {
        std::map<Member, std::uint64_t> held;
        for (const Loan& loan : loans_) held[loan.member] += loan.amount;
        std::uint64_t shared = 0;
        std::map<std::string, std::uint64_t> of_client;
        for (const auto& [member, amount] : held) {
            ASSERT_EQ(budget_.held(member), amount);
            const std::uint64_t beyond = amount > options_.assured ? amount - options_.assured : 0;
            shared += beyond;
            of_client[client_[member]] += beyond;
        }
        ASSERT_EQ(budget_.shared_taken(), shared);
        if (!options_.bound) return;
        ASSERT_LE(shared, options_.shared);
        // Who becomes another client's brings what it has; nothing more is lent to that one until it is
        // below.
        if (changed_) return;
        for (const auto& [client, amount] : of_client) ASSERT_LE(amount, options_.of_client) << client;
    }

    const FairBudgetOptions options_;
    FairBudget budget_;
    SplitMix64 random_;
    const bool changes_;  ///< of clients
    std::vector<Loan> loans_;
    std::map<Member, std::vector<std::uint64_t>> asked_;
    std::map<Member, std::string> client_;
    bool changed_ = false;
};

TEST(FairBudget, NeverExceedsTheBudgetAndEventuallyServesEveryMember) {
    SplitMix64 random(test::run_seed());
    std::uint64_t waits = 0;
    std::uint64_t grants = 0;
    for (int round = 0; round < 300; ++round) {
        FairBudgetOptions options;
        options.shared = 80 + random.below(100);
        options.of_client = 40 + random.below(40);
        options.assured = random.below(10);
        options.turn = 1 + random.below(50);
        options.bound = random.below(4) != 0;
        Crowd crowd(options, random.next(), round % 2 == 0);
        for (int i = 0; i < 1000 && !::testing::Test::HasFatalFailure(); ++i) crowd.step();
        crowd.finish();
        ASSERT_FALSE(::testing::Test::HasFatalFailure()) << "round " << round;
        waits += crowd.waits;
        grants += crowd.grants;
    }
    EXPECT_GT(grants, 0u);
    test::count("nvmf_budget_waits", waits);
}

/// Everybody always wants more than there is: `pairs[i]` queue pairs of client i, each with requests of
/// `sizes[i]`. What each client has been granted when `rounds` loans have come back, oldest first.
std::vector<std::uint64_t> served(const FairBudgetOptions& options, const std::vector<std::uint32_t>& pairs,
                                  const std::vector<std::uint64_t>& sizes, std::uint32_t rounds) {
    FairBudget budget(options);
    std::vector<std::size_t> client_of;
    std::deque<Loan> loans;
    for (std::size_t c = 0; c < pairs.size(); ++c)
        for (std::uint32_t i = 0; i < pairs[c]; ++i) {
            const Member member = budget.join("client " + std::to_string(c));
            EXPECT_EQ(member, client_of.size());
            client_of.push_back(c);
            for (std::uint64_t k = 0; k < 2 * options.shared / sizes[c]; ++k)
                if (budget.take(member, sizes[c])) loans.push_back({member, sizes[c]});
        }
    std::vector<std::uint64_t> granted(pairs.size());
    const auto lend = [&](Member member, std::uint64_t size) {
        loans.push_back({member, size});
        granted[client_of[member]] += size;
    };
    for (std::uint32_t i = 0; i < rounds; ++i) {
        EXPECT_FALSE(loans.empty());
        const Loan back = loans.front();
        loans.pop_front();
        budget.give(back.member, back.amount);
        while (const auto member = budget.next()) lend(*member, sizes[client_of[*member]]);
        if (budget.take(back.member, back.amount)) lend(back.member, back.amount);
    }
    return granted;
}

TEST(FairBudget, AClientWithManyQueuePairsHasOneShare) {
    const FairBudgetOptions places{.shared = 64, .turn = 1, .bound = false};
    const auto commands = served(places, {64, 1}, {1, 1}, 100'000);
    EXPECT_NEAR(static_cast<double>(commands[0]), static_cast<double>(commands[1]), 5'000.0);
    const FairBudgetOptions bytes{
        .shared = 4096, .assured = 0, .of_client = 2048, .turn = 256, .bound = true};
    const auto same = served(bytes, {64, 1, 1}, {16, 16, 16}, 100'000);
    EXPECT_NEAR(static_cast<double>(same[0]), static_cast<double>(same[1]),
                0.05 * static_cast<double>(same[1]));
    EXPECT_NEAR(static_cast<double>(same[2]), static_cast<double>(same[1]),
                0.05 * static_cast<double>(same[1]));
    // By what it moves, not by how many commands move it.
    const auto sizes = served(bytes, {64, 1, 4}, {256, 16, 1}, 100'000);
    EXPECT_LT(sizes[0], 2 * sizes[1]);
    EXPECT_LT(sizes[0], 2 * sizes[2]);
}

TEST(FairBudget, AMemberBehindAGreedyOneWaitsForOneOfItsTurns) {
    constexpr std::uint64_t kTurn = 100;
    FairBudget budget({.shared = 1000, .assured = 0, .of_client = 1000, .turn = kTurn, .bound = true});
    std::deque<Loan> loans;
    for (int pair = 0; pair < 64; ++pair) {
        const Member greedy = budget.join("greedy");
        for (int i = 0; i < 100; ++i)
            if (budget.take(greedy, 20)) loans.push_back({greedy, 20});
    }
    const Member modest = budget.join("modest");
    for (int command = 0; command < 50; ++command) {
        ASSERT_FALSE(budget.take(modest, 10));
        std::uint64_t before = 0;
        for (bool mine = false; !mine;) {
            budget.give(loans.front().member, loans.front().amount);
            loans.pop_front();
            while (const auto member = budget.next()) {
                mine = mine || *member == modest;
                if (!mine) before += 20;
                loans.push_back({*member, *member == modest ? 10u : 20u});
            }
            ASSERT_LE(before, kTurn);
        }
    }
}

TEST(FairBudget, ManySmallRequestsDoNotStarveALargeOne) {
    FairBudget budget({.shared = 100, .assured = 0, .of_client = 100, .turn = 100, .bound = true});
    const Member large = budget.join("large");
    const Member small = budget.join("small");
    for (int i = 0; i < 50; ++i) ASSERT_TRUE(budget.take(small, 1));
    ASSERT_FALSE(budget.take(large, 80));
    for (int i = 0; i < 30; ++i) {
        EXPECT_FALSE(budget.take_now(small, 1))
            << "the small request would take the budget that the large one waits for";
        budget.give(small, 1);
    }
    EXPECT_EQ(budget.next(), large);
}

TEST(FairBudget, AMemberAtItsLimitDoesNotDelayOthers) {
    FairBudget budget({.shared = 100, .assured = 0, .of_client = 50, .turn = 100, .bound = true});
    const Member full = budget.join("full");
    const Member other = budget.join("other");
    const Member small = budget.join("small");
    ASSERT_TRUE(budget.take(full, 50));
    ASSERT_TRUE(budget.take(other, 45));
    ASSERT_FALSE(budget.take(full, 20)) << "neither has it a right to more, nor is there so much";
    EXPECT_TRUE(budget.take(small, 2));
    budget.give(small, 1);
    EXPECT_FALSE(budget.next());
    EXPECT_TRUE(budget.take(small, 3)) << "the request delays no other member";
}

TEST(FairBudget, AnAssuredShareIsGrantedWithoutWaiting) {
    FairBudget budget({.shared = 100, .assured = 8, .of_client = 50, .turn = 10, .bound = true});
    const Member hogs[] = {budget.join("hog"), budget.join("another")};
    for (const Member hog : hogs) {
        ASSERT_TRUE(budget.take(hog, 58));
        ASSERT_FALSE(budget.take(hog, 1));
    }
    const Member modest = budget.join("modest");
    for (int i = 0; i < 1000; ++i) {
        ASSERT_TRUE(budget.take(modest, 8));
        ASSERT_FALSE(budget.take(modest, 8));
        budget.give(modest, 8);
        ASSERT_EQ(budget.next(), modest);
        ASSERT_FALSE(budget.next());
        budget.give(modest, 8);
    }
}

TEST(FairBudget, ASingleMemberNeverWaitsForTurns) {
    FairBudget budget({.shared = 4, .turn = 1, .bound = false});
    const Member alone = budget.join("alone");
    for (int i = 0; i < 1000; ++i) ASSERT_TRUE(budget.take(alone, 1));
    // Another one has its part at once, and from then on they take turns.
    const Member other = budget.join("other");
    EXPECT_TRUE(budget.take(other, 1));
    EXPECT_TRUE(budget.take(other, 1));
    EXPECT_FALSE(budget.take(other, 1));
    EXPECT_FALSE(budget.take(alone, 1));
    budget.give(other, 1);
    EXPECT_EQ(budget.next(), other);
    EXPECT_FALSE(budget.next());
    // And it goes on by itself when the other has gone.
    budget.leave(other);
    EXPECT_EQ(budget.next(), alone);
    EXPECT_TRUE(budget.take(alone, 1));
}

}  // namespace
}  // namespace gnstor::nvmf
