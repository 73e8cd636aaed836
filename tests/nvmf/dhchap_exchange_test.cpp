// dhchap_exchange_test.cpp: both ends of a transaction authenticate each other if, and only if, nothing is
// wrong.
#include "dhchap_rig.hpp"
#include "support/count.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace gnstor::nvmf::auth::dhchap_exchange_test {
namespace {

using namespace rig;

constexpr HashId kHashes[] = {HashId::kSha256, HashId::kSha384, HashId::kSha512};

Scenario scenario_of(HashId hash, GroupId group, bool bidirectional) {
    Scenario scenario;
    scenario.policy = only(hash, group);
    scenario.bidirectional = bidirectional;
    return scenario;
}

TEST(DhchapExchange, BothEndsAgreeWithEveryHashAndGroupInOneDirectionAndInBoth) {
    for (const HashId hash : kHashes) {
        for (const GroupId group : {GroupId::kNull, GroupId::kFfdhe2048, GroupId::kFfdhe3072}) {
            for (const bool both_ways : {false, true}) {
                Scenario scenario = scenario_of(hash, group, both_ways);
                scenario.transaction = 0xFFFE;
                const Exchange run = exchange(scenario);
                EXPECT_TRUE(run.both()) << run.host.why << run.controller.why;
                // Negotiate, Challenge, Reply, Success1, and Success2 if the host asked for a proof.
                ASSERT_EQ(run.messages.size(), both_ways ? 5u : 4u);
                const std::size_t h = hash_bytes(hash);
                const std::size_t g = group_bytes(group);
                EXPECT_EQ(run.messages[0].size(), 72u);
                EXPECT_EQ(run.messages[1].size(), 16 + h + g);
                EXPECT_EQ(run.messages[2].size(), 16 + 2 * h + g);
                EXPECT_EQ(run.messages[3].size(), 16 + (both_ways ? h : 0));
            }
        }
    }
    for (const GroupId group : {GroupId::kFfdhe4096, GroupId::kFfdhe6144, GroupId::kFfdhe8192})
        EXPECT_TRUE(exchange(scenario_of(HashId::kSha512, group, true)).both());
}

TEST(DhchapExchange, KeysOfAllLengthsAndTransformsWork) {
    const std::pair<KeyTransform, std::size_t> kinds[] = {
        {KeyTransform::kNone, 32},   {KeyTransform::kNone, 48},   {KeyTransform::kNone, 64},
        {KeyTransform::kSha256, 32}, {KeyTransform::kSha384, 48}, {KeyTransform::kSha512, 64}};
    for (const auto& [transform, bytes] : kinds) {
        const DhchapKey key = key_of(5, transform, bytes);
        const DhchapKey proof = key_of(6, transform, bytes);
        const OneHost store(kHostNqn, {key.clone(), proof.clone()});
        const DhchapPolicy policy = only(HashId::kSha256, GroupId::kNull);
        auto host = DhchapHost::create({kHostNqn, kSubsystemNqn, 3, policy}, key, &proof, random_from(1));
        auto controller = DhchapController::create({kHostNqn, kSubsystemNqn, policy}, store, random_from(2));
        ASSERT_TRUE(host.ok() && controller.ok());
        EXPECT_TRUE(exchange(*host, *controller).both());
    }
}

TEST(DhchapExchange, AWrongKeyFailsAndSoDoesOneOfTwo) {
    for (const GroupId group : {GroupId::kNull, GroupId::kFfdhe2048}) {
        Scenario scenario = scenario_of(HashId::kSha256, group, false);
        scenario.host_key = 9;
        Exchange run = exchange(scenario);
        EXPECT_EQ(run.controller.state, AuthState::kFailed);
        EXPECT_EQ(run.controller.failure, AuthFailure::kAuthenticationFailed);
        EXPECT_EQ(run.host.state, AuthState::kFailed);
        EXPECT_EQ(run.host.failure, AuthFailure::kAuthenticationFailed);
        EXPECT_TRUE(run.host.failed_by_peer);
        scenario.bidirectional = true;
        EXPECT_EQ(exchange(scenario).controller.failure, AuthFailure::kAuthenticationFailed);
        // The host's key is right, the controller's is not: the host notices, and says so by AUTH_Failure2.
        scenario.host_key = 1;
        scenario.controller_key = 9;
        run = exchange(scenario);
        EXPECT_EQ(run.host.state, AuthState::kFailed);
        EXPECT_FALSE(run.host.failed_by_peer);
        EXPECT_EQ(run.controller.state, AuthState::kFailed);
        EXPECT_TRUE(run.controller.failed_by_peer);
        EXPECT_EQ(run.controller.failure, AuthFailure::kAuthenticationFailed);
        ASSERT_EQ(run.messages.size(), 5u);
        EXPECT_EQ(kind_of(run.messages[4]), MessageKind::kFailure2);
    }
}

TEST(DhchapExchange, TheNamesAreAPartOfTheProof) {
    const DhchapKey key = key_of(1);  // not transformed, so the names are in the responses alone
    const OneHost store(kHostNqn, {key.clone(), std::nullopt});
    const DhchapPolicy policy = only(HashId::kSha256, GroupId::kNull);
    auto host = DhchapHost::create({kHostNqn, "nqn.2026-11.io.gnstor:ssd:y", 0, policy}, key, nullptr,
                                   random_from(1));
    auto controller = DhchapController::create({kHostNqn, kSubsystemNqn, policy}, store, random_from(2));
    EXPECT_EQ(exchange(*host, *controller).controller.failure, AuthFailure::kAuthenticationFailed);
}

// ---- policy

TEST(DhchapPolicy, TheControllerTakesItsFirstPreferenceThatTheHostOffers) {
    Scenario scenario;
    DhchapController any = make_controller(scenario, DhchapPolicy{});
    DhchapHost host = make_host(scenario);
    any.on_send(host.start());
    const auto challenge = decode_challenge(any.on_receive(4096).message);
    ASSERT_TRUE(challenge);
    EXPECT_EQ(challenge.message->hash, HashId::kSha512);
    EXPECT_EQ(challenge.message->group, GroupId::kFfdhe3072);
}

TEST(DhchapPolicy, WhatOneEndDoesNotAllowIsNotUsed) {
    const auto controller_failure = [](const DhchapPolicy& of_host, const DhchapPolicy& of_controller) {
        Scenario scenario;
        scenario.policy = of_host;
        DhchapHost host = make_host(scenario);
        DhchapController controller = make_controller(scenario, of_controller);
        const Exchange run = exchange(host, controller);
        EXPECT_EQ(run.host.state, AuthState::kFailed);
        EXPECT_EQ(run.host.failure, run.controller.failure);
        return run.controller.failure;
    };
    const auto null_only = only(HashId::kSha256, GroupId::kNull);
    EXPECT_EQ(controller_failure(null_only, DhchapPolicy{}), AuthFailure::kGroupNotUsable);
    EXPECT_EQ(controller_failure(DhchapPolicy{}, null_only), AuthFailure::kGroupNotUsable);
    EXPECT_EQ(controller_failure(only(HashId::kSha256, GroupId::kFfdhe2048),
                                 only(HashId::kSha384, GroupId::kFfdhe2048)),
              AuthFailure::kHashNotUsable);
    EXPECT_EQ(controller_failure(only(HashId::kSha256, GroupId::kFfdhe2048),
                                 only(HashId::kSha256, GroupId::kFfdhe3072)),
              AuthFailure::kGroupNotUsable);
}

TEST(DhchapPolicy, TheHostRefusesAChallengeThatIsBelowItsPolicy) {
    // Somebody on the path offers the controller more than the host did.
    const auto host_failure = [](std::size_t at, unsigned id) {
        Scenario scenario = scenario_of(HashId::kSha512, GroupId::kFfdhe2048, true);
        DhchapHost host = make_host(scenario);
        DhchapPolicy lax;
        lax.allow_null_group = true;
        DhchapController controller = make_controller(scenario, lax);
        const Exchange run = exchange(host, controller, [&](std::size_t n, Bytes& m) {
            if (n == 0) m[at] = std::byte(id);
        });
        EXPECT_EQ(run.host.state, AuthState::kFailed);
        EXPECT_FALSE(run.host.failed_by_peer);
        EXPECT_EQ(run.controller.state, AuthState::kFailed);
        return run.host.failure;
    };
    EXPECT_EQ(host_failure(12, 1), AuthFailure::kHashNotUsable);
    EXPECT_EQ(host_failure(42, 0), AuthFailure::kGroupNotUsable);
    EXPECT_EQ(host_failure(42, 2), AuthFailure::kGroupNotUsable);
}

TEST(DhchapPolicy, AProofIsDemandedWhereThePolicyDemandsIt) {
    Scenario scenario = scenario_of(HashId::kSha256, GroupId::kNull, false);
    DhchapHost host = make_host(scenario);
    DhchapPolicy strict = scenario.policy;
    strict.require_bidirectional = true;
    DhchapController controller = make_controller(scenario, strict);
    EXPECT_EQ(exchange(host, controller).controller.failure, AuthFailure::kAuthenticationFailed);
    scenario.bidirectional = true;
    scenario.policy = strict;
    EXPECT_TRUE(exchange(scenario).both());
    const auto none =
        DhchapHost::create({kHostNqn, kSubsystemNqn, 0, strict}, key_of(1), nullptr, random_from(1));
    EXPECT_FALSE(none.ok());
    // The controller has no key of its own: it cannot prove one.
    scenario.controller_has_key = false;
    const Exchange run = exchange(scenario);
    EXPECT_EQ(run.controller.failure, AuthFailure::kAuthenticationFailed);
    EXPECT_EQ(run.host.state, AuthState::kFailed);
}

TEST(DhchapPolicy, BadPoliciesAreErrors) {
    const auto good = [](const DhchapPolicy& policy) { return policy.check().ok(); };
    EXPECT_TRUE(good({}));
    EXPECT_FALSE(good({.hashes = {}}));
    EXPECT_FALSE(good({.groups = {}}));
    EXPECT_TRUE(good({.groups = {}, .allow_null_group = true}));
    EXPECT_FALSE(good({.groups = {GroupId::kNull, GroupId::kFfdhe2048}}));
    EXPECT_FALSE(good({.hashes = {HashId::kSha256, HashId::kSha256}}));
    EXPECT_FALSE(DhchapPolicy{}.allows(GroupId::kNull));
}

// ---- an attacker on the path

/// Changes one byte of one message in each of many runs; neither end may come to trust the other by it.
void flip_every_byte(const Scenario& scenario, bool every_bit, std::uint64_t& flips) {
    const Exchange clean = exchange(scenario);
    ASSERT_TRUE(clean.both());
    for (std::size_t message = 0; message < clean.messages.size(); ++message) {
        // Of a reply without a challenge S2 does not matter, as Linux draws it there, too.
        const bool no_challenge = message == 2 && clean.messages[message][8] == std::byte{0};
        for (std::size_t at = 0; at < clean.messages[message].size(); ++at) {
            if (no_challenge && at >= 12 && at < 16) continue;
            for (unsigned bit = 0; bit < 9; ++bit) {
                if (!every_bit && bit != at % 9) continue;
                const std::byte mask{static_cast<unsigned char>(bit < 8 ? 1u << bit : 0xFFu)};
                const Exchange run = exchange(scenario, [&](std::size_t n, Bytes& bytes) {
                    if (n == message) bytes[at] ^= mask;
                });
                ASSERT_FALSE(run.both()) << "message " << message << " byte " << at << " bit " << bit;
                // Who received the changed message does not trust its sender.
                const bool to_controller = message % 2 == 0;
                const AuthState state = to_controller ? run.controller.state : run.host.state;
                ASSERT_NE(state, AuthState::kAuthenticated) << "message " << message << " byte " << at;
                ++flips;
            }
        }
    }
}

TEST(DhchapTampering, AFlippedBitOfAnyMessageFailsTheTransaction) {
    std::uint64_t flips = 0;
    for (const bool both_ways : {false, true}) {
        for (const HashId hash : kHashes)
            flip_every_byte(scenario_of(hash, GroupId::kNull, both_ways), true, flips);
    }
    // Exponentiation takes milliseconds: one bit of each byte.
    flip_every_byte(scenario_of(HashId::kSha256, GroupId::kFfdhe2048, true), false, flips);
    test::count("nvmf_auth_flips", flips);
}

TEST(DhchapTampering, ATruncatedMessageFailsTheTransaction) {
    std::uint64_t cuts = 0;
    for (const GroupId group : {GroupId::kNull, GroupId::kFfdhe2048}) {
        for (const bool both_ways : {false, true}) {
            if (group != GroupId::kNull && !both_ways) continue;  // a part of the other direction's messages
            const Scenario scenario = scenario_of(HashId::kSha256, group, both_ways);
            const Exchange clean = exchange(scenario);
            for (std::size_t message = 0; message < clean.messages.size(); ++message) {
                for (std::size_t length = 0; length < clean.messages[message].size(); ++length) {
                    const Exchange run = exchange(scenario, [&](std::size_t n, Bytes& bytes) {
                        if (n == message)
                            bytes = Bytes(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length));
                    });
                    const bool to_controller = message % 2 == 0;
                    // A message that is empty was not sent at all; the other end then fetches what is not
                    // there.
                    ASSERT_NE(to_controller ? run.controller.state : run.host.state,
                              AuthState::kAuthenticated)
                        << "message " << message << " length " << length;
                    ASSERT_FALSE(run.both());
                    ++cuts;
                }
            }
        }
    }
    test::count("nvmf_auth_truncations", cuts);
}

TEST(DhchapTampering, WhatLiesBehindAMessageInTheHostsBufferDoesNotMatter) {
    for (const bool both_ways : {false, true}) {
        const Exchange run = exchange(scenario_of(HashId::kSha384, GroupId::kFfdhe2048, both_ways),
                                      [](std::size_t n, Bytes& m) {
                                          if (n % 2 == 1) m.resize(kAuthMessageBytesMax, std::byte{0xC3});
                                      });
        EXPECT_TRUE(run.both());
        const Exchange longer =
            exchange(scenario_of(HashId::kSha384, GroupId::kNull, both_ways), [](std::size_t n, Bytes& m) {
                if (n == 2) m.push_back(std::byte{0});  // a message to the controller has exactly its length
            });
        EXPECT_EQ(longer.controller.failure, AuthFailure::kIncorrectPayload);
    }
}

TEST(DhchapTampering, AnOlderTransactionCannotBeReplayed) {
    for (const GroupId group : {GroupId::kNull, GroupId::kFfdhe2048}) {
        Scenario scenario = scenario_of(HashId::kSha256, group, true);
        const Exchange old = exchange(scenario);
        ASSERT_TRUE(old.both());
        scenario.seed = 77;
        DhchapController controller = make_controller(scenario, scenario.policy);
        controller.on_send(old.messages[0]);
        EXPECT_NE(controller.on_receive(4096).message, old.messages[1]);
        controller.on_send(old.messages[2]);
        EXPECT_EQ(controller.outcome().state, AuthState::kFailed);
        EXPECT_EQ(controller.outcome().failure, AuthFailure::kAuthenticationFailed);
        // To a host that asks for a proof, with the T_ID of the older transaction.
        DhchapHost host = make_host(scenario);
        EXPECT_EQ(host.start(), old.messages[0]);
        EXPECT_NE(host.on_message(old.messages[1]), old.messages[2]);
        EXPECT_EQ(kind_of(host.on_message(old.messages[3])), MessageKind::kFailure2);
        EXPECT_EQ(host.outcome().failure, AuthFailure::kAuthenticationFailed);
        // And with another one.
        scenario.transaction = 5;
        DhchapHost next = make_host(scenario);
        (void)next.start();
        EXPECT_EQ(kind_of(next.on_message(old.messages[1])), MessageKind::kFailure2);
        EXPECT_EQ(next.outcome().failure, AuthFailure::kIncorrectPayload);
    }
}

TEST(DhchapTampering, AnEndsOwnValuesSentBackAreRefused) {
    const Scenario scenario = scenario_of(HashId::kSha256, GroupId::kFfdhe2048, true);
    Bytes challenge;
    const auto with_challenge = [&](const std::function<void(Bytes&)>& change) {
        return exchange(scenario,
                        [&](std::size_t n, Bytes& m) {
                            if (n == 1) challenge = m;
                            if (n == 2) change(m);
                        })
            .controller;
    };
    // C2 = C1.
    AuthOutcome outcome =
        with_challenge([&](Bytes& m) { std::copy_n(challenge.begin() + 16, 32, m.begin() + 16 + 32); });
    EXPECT_EQ(outcome.failure, AuthFailure::kAuthenticationFailed);
    EXPECT_STREQ(outcome.why, "the host sent the controller's challenge back");
    // The controller's public value.
    outcome = with_challenge([&](Bytes& m) { std::copy_n(challenge.begin() + 48, 256, m.begin() + 80); });
    EXPECT_EQ(outcome.failure, AuthFailure::kIncorrectPayload);
    // The whole message, to either end.
    outcome = with_challenge([&](Bytes& m) { m = challenge; });
    EXPECT_EQ(outcome.failure, AuthFailure::kIncorrectMessage);
    Bytes reply;
    const Exchange run = exchange(scenario, [&](std::size_t n, Bytes& m) {
        if (n == 2) reply = m;
        if (n == 3) m = reply;
    });
    EXPECT_EQ(run.host.failure, AuthFailure::kIncorrectMessage);
    // The host's response as the proof of the controller.
    const Exchange echoed = exchange(scenario, [&](std::size_t n, Bytes& m) {
        if (n == 2) reply = m;
        if (n == 3) std::copy_n(reply.begin() + 16, 32, m.begin() + 16);
    });
    EXPECT_EQ(echoed.host.failure, AuthFailure::kAuthenticationFailed);
}

TEST(DhchapTampering, APublicValueOutsideOfTheGroupFailsEitherEnd) {
    const Scenario scenario = scenario_of(HashId::kSha256, GroupId::kFfdhe2048, false);
    for (const std::byte fill : {std::byte{0}, std::byte{0xFF}}) {
        const Exchange to_host = exchange(scenario, [&](std::size_t n, Bytes& m) {
            if (n == 1) std::fill(m.begin() + 48, m.end(), fill);
        });
        EXPECT_EQ(to_host.host.failure, AuthFailure::kIncorrectPayload);
        const Exchange to_controller = exchange(scenario, [&](std::size_t n, Bytes& m) {
            if (n == 2) std::fill(m.begin() + 80, m.end(), fill);
        });
        EXPECT_EQ(to_controller.controller.failure, AuthFailure::kIncorrectPayload);
    }
}

TEST(DhchapTampering, AControllerThatLeavesItsProofOutIsNotTrusted) {
    const Exchange run =
        exchange(scenario_of(HashId::kSha256, GroupId::kNull, true), [](std::size_t n, Bytes& m) {
            if (n == 3) m = encode(Success1{.transaction = 0, .response = {}}, HashId::kSha256);
        });
    EXPECT_EQ(run.host.failure, AuthFailure::kAuthenticationFailed);
    EXPECT_EQ(run.controller.state, AuthState::kFailed);
}

TEST(DhchapTampering, AProofThatNobodyAskedForIsRefused) {
    const Exchange run =
        exchange(scenario_of(HashId::kSha256, GroupId::kNull, false), [](std::size_t n, Bytes& m) {
            if (n == 3)
                m = encode(Success1{.transaction = 0, .response = Bytes(32, std::byte{1})}, HashId::kSha256);
        });
    EXPECT_EQ(run.host.state, AuthState::kFailed);
    EXPECT_EQ(run.host.failure, AuthFailure::kIncorrectPayload);
}

// ---- order

/// The two ends after so many messages of a transaction were delivered.
struct Ends {
    DhchapHost host;
    DhchapController controller;
    Ends(const Scenario& scenario, std::size_t delivered)
        : host(make_host(scenario)), controller(make_controller(scenario, scenario.policy)) {
        Bytes to_controller = host.start();
        for (std::size_t n = 0; n < delivered; ++n) {
            if (n % 2 == 0)
                controller.on_send(to_controller);
            else
                to_controller = host.on_message(controller.on_receive(4096).message);
        }
    }
};

TEST(DhchapOrder, AMessageOutOfTurnFailsTheTransaction) {
    std::uint64_t tried = 0;
    for (const bool both_ways : {false, true}) {
        const Scenario scenario = scenario_of(HashId::kSha256, GroupId::kNull, both_ways);
        const Exchange clean = exchange(scenario);
        for (std::size_t delivered = 0; delivered <= clean.messages.size(); ++delivered) {
            for (std::size_t extra = 0; extra < clean.messages.size(); ++extra) {
                Ends ends(scenario, delivered);
                // Even messages go to the controller, odd ones to the host; both see each of them.
                if (extra != delivered || extra % 2 == 1) {
                    ends.controller.on_send(clean.messages[extra]);
                    EXPECT_EQ(ends.controller.outcome().state, AuthState::kFailed)
                        << delivered << " " << extra;
                    EXPECT_EQ(ends.controller.outcome().failure, AuthFailure::kIncorrectMessage);
                    EXPECT_EQ(kind_of(ends.controller.on_receive(4096).message), MessageKind::kFailure1);
                    ++tried;
                }
                const std::size_t expected = delivered + (delivered % 2 == 0 ? 1 : 0);
                if (extra == expected) continue;
                const Bytes answer = ends.host.on_message(clean.messages[extra]);
                EXPECT_EQ(ends.host.outcome().state, AuthState::kFailed) << delivered << " " << extra;
                EXPECT_EQ(ends.host.outcome().failure, AuthFailure::kIncorrectMessage);
                EXPECT_EQ(kind_of(answer), MessageKind::kFailure2);
                ++tried;
            }
        }
    }
    test::count("nvmf_auth_out_of_turn", tried);
}

TEST(DhchapOrder, AFetchWithoutAMessageFailsTheTransaction) {
    const Scenario scenario = scenario_of(HashId::kSha256, GroupId::kNull, true);
    DhchapController controller = make_controller(scenario, scenario.policy);
    auto answer = controller.on_receive(4096);
    EXPECT_EQ(answer.status, nvme::Status::kSuccess);
    EXPECT_EQ(decode_failure(answer.message).message->explanation, AuthFailure::kIncorrectMessage);
    // The failure may be fetched again, and nothing revives the transaction.
    EXPECT_EQ(controller.on_receive(4096).message, answer.message);
    controller.on_send(make_host(scenario).start());
    EXPECT_EQ(controller.on_receive(4096).message, answer.message);
    // A challenge is handed out once.
    DhchapController twice = make_controller(scenario, scenario.policy);
    twice.on_send(make_host(scenario).start());
    EXPECT_EQ(kind_of(twice.on_receive(4096).message), MessageKind::kChallenge);
    EXPECT_EQ(kind_of(twice.on_receive(4096).message), MessageKind::kFailure1);
}

TEST(DhchapOrder, ABufferThatIsTooShortGetsNothingAndMayBeOfferedLonger) {
    const Scenario scenario = scenario_of(HashId::kSha256, GroupId::kNull, false);
    DhchapController controller = make_controller(scenario, scenario.policy);
    controller.on_send(make_host(scenario).start());
    for (const std::uint32_t length : {0u, 1u, 47u})
        EXPECT_EQ(controller.on_receive(length).status, nvme::Status::kInvalidField);
    EXPECT_EQ(controller.on_receive(48).message.size(), 48u);
    EXPECT_EQ(controller.outcome().state, AuthState::kRunning);
}

TEST(DhchapOrder, AHostIsNotTrustedBeforeItFetchedSuccess1AndConfirmedIt) {
    const Scenario scenario = scenario_of(HashId::kSha256, GroupId::kNull, true);
    DhchapHost host = make_host(scenario);
    DhchapController controller = make_controller(scenario, scenario.policy);
    controller.on_send(host.start());
    controller.on_send(host.on_message(controller.on_receive(4096).message));
    EXPECT_EQ(controller.outcome().state, AuthState::kRunning);
    const Bytes success2 = host.on_message(controller.on_receive(4096).message);
    EXPECT_EQ(controller.outcome().state, AuthState::kRunning);
    EXPECT_EQ(host.outcome().state, AuthState::kAuthenticated);
    controller.on_send(success2);
    EXPECT_EQ(controller.outcome().state, AuthState::kAuthenticated);
    controller.on_send(success2);
    EXPECT_EQ(controller.outcome().state, AuthState::kFailed);
    (void)host.start();
    EXPECT_EQ(host.outcome().state, AuthState::kFailed);
}

TEST(DhchapOrder, AHostThatGivesUpEndsTheTransactionAtAnyStep) {
    const Scenario scenario = scenario_of(HashId::kSha256, GroupId::kNull, true);
    const Bytes giving_up = encode(Failure{0, AuthFailure::kHashNotUsable}, MessageKind::kFailure2);
    for (std::size_t delivered = 0; delivered < 5; ++delivered) {
        Ends ends(scenario, delivered);
        ends.controller.on_send(giving_up);
        EXPECT_TRUE(ends.controller.outcome().failed_by_peer);
        EXPECT_EQ(ends.controller.outcome().failure, AuthFailure::kHashNotUsable);
    }
}

// ---- hosts without a key

TEST(DhchapUnknownHost, IsAnsweredAsOneWithAWrongKey) {
    for (const GroupId group : {GroupId::kNull, GroupId::kFfdhe2048}) {
        for (const bool both_ways : {false, true}) {
            Scenario wrong = scenario_of(HashId::kSha384, group, both_ways);
            wrong.host_key = 9;
            Scenario unknown = wrong;
            unknown.host_nqn = "nqn.2014-08.org.nvmexpress:uuid:99999999-2222-3333-4444-555555555555";
            const Exchange a = exchange(wrong);
            const Exchange b = exchange(unknown);
            ASSERT_EQ(a.messages.size(), b.messages.size());
            for (std::size_t i = 0; i < a.messages.size(); ++i) {
                EXPECT_EQ(a.messages[i].size(), b.messages[i].size());
                // What the controller says is the same to the byte: it draws the same random bytes in both
                // cases.
                EXPECT_TRUE(i % 2 == 0 || a.messages[i] == b.messages[i]) << i;
            }
            EXPECT_EQ(kind_of(b.messages.back()), MessageKind::kFailure1);
            EXPECT_EQ(a.controller.failure, b.controller.failure);
            EXPECT_STREQ(a.controller.why, b.controller.why);
        }
    }
}

TEST(DhchapUnknownHost, IsNotTrustedEvenIfItGuessedTheRandomKey) {
    const DhchapPolicy policy = only(HashId::kSha256, GroupId::kNull);
    const char* stranger = "nqn.2014-08.org.nvmexpress:uuid:99999999-2222-3333-4444-555555555555";
    Bytes drawn(32);
    ASSERT_TRUE(random_from(5)(drawn));
    const auto guess = DhchapKey::from_bytes(KeyTransform::kSha256, drawn);
    const OneHost store(kHostNqn, {key_of(1), std::nullopt});
    auto host = DhchapHost::create({stranger, kSubsystemNqn, 0, policy}, *guess, nullptr, random_from(1));
    auto controller = DhchapController::create({stranger, kSubsystemNqn, policy}, store, random_from(5));
    EXPECT_EQ(exchange(*host, *controller).controller.failure, AuthFailure::kAuthenticationFailed);
    // The guess is right: with this key the host is trusted where it is known.
    const OneHost known(stranger, {guess->clone(), std::nullopt});
    host = DhchapHost::create({stranger, kSubsystemNqn, 0, policy}, *guess, nullptr, random_from(1));
    controller = DhchapController::create({stranger, kSubsystemNqn, policy}, known, random_from(5));
    EXPECT_TRUE(exchange(*host, *controller).both());
}

TEST(DhchapRandomness, WithoutItNothingIsAuthenticated) {
    const FillRandom none = [](std::span<std::byte>) { return false; };
    const DhchapPolicy policy = only(HashId::kSha256, GroupId::kNull);
    const OneHost store(kHostNqn, {key_of(1), std::nullopt});
    EXPECT_FALSE(DhchapController::create({kHostNqn, kSubsystemNqn, policy}, store, none).ok());
    const DhchapKey proof = key_of(2, KeyTransform::kSha384, 48);
    auto host = DhchapHost::create({kHostNqn, kSubsystemNqn, 0, policy}, key_of(1), &proof, none);
    Scenario scenario;
    DhchapController controller = make_controller(scenario, policy);
    EXPECT_FALSE(exchange(*host, controller).both());
    EXPECT_EQ(host->outcome().state, AuthState::kFailed);
}

TEST(DhchapRandomness, ZerosStillGiveNonzeroSequenceNumbers) {
    EXPECT_EQ(draw_sequence([](std::span<std::byte> to) {
                  std::fill(to.begin(), to.end(), std::byte{0});
                  return true;
              }),
              1u);
}

}  // namespace
}  // namespace gnstor::nvmf::auth::dhchap_exchange_test
