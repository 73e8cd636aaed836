#include "nvmf/auth/dhchap_host.hpp"

#include "nvmf/auth/dhchap_crypto.hpp"

#include <algorithm>
#include <utility>

namespace gnstor::nvmf::auth {

Result<DhchapHost> DhchapHost::create(DhchapHostOptions options, const DhchapKey& host_key,
                                      const DhchapKey* controller_key, FillRandom random) {
    GN_TRY(options.policy.check());
    if (options.policy.require_bidirectional && controller_key == nullptr)
        return error(
            Errc::kInvalidArgument,
            "DH-HMAC-CHAP: the policy requires a proof of {}, but the host has no key of the controller",
            options.subsystem_nqn);
    DhchapHost host(std::move(options), std::move(random));
    GN_ASSIGN(host.host_key_, host_key.transform(host.options_.host_nqn));
    if (controller_key != nullptr) {
        GN_ASSIGN(host.controller_key_, controller_key->transform(host.options_.subsystem_nqn));
    }
    return host;
}

std::vector<std::byte> DhchapHost::start() {
    if (step_ != Step::kStart)
        return fail(AuthFailure::kIncorrectMessage, "the transaction was started twice");
    step_ = Step::kAwaitChallenge;
    return encode(Negotiate{.transaction = options_.transaction,
                            .hashes = options_.policy.hashes,
                            .groups = options_.policy.all_groups()});
}

std::vector<std::byte> DhchapHost::on_message(std::span<const std::byte> buffer) {
    const auto kind = kind_of(buffer);
    if (outcome_.state == AuthState::kFailed) return {};
    if (!kind) return fail(AuthFailure::kIncorrectPayload, "the controller sent bytes that are no message");
    if (*kind == MessageKind::kFailure1 && step_ != Step::kEnd) {
        on_failure1(buffer);
        return {};
    }
    if (*kind == MessageKind::kChallenge && step_ == Step::kAwaitChallenge) return on_challenge(buffer);
    if (*kind == MessageKind::kSuccess1 && step_ == Step::kAwaitSuccess1) return on_success1(buffer);
    return fail(AuthFailure::kIncorrectMessage, "the controller sent a message that was not expected");
}

void DhchapHost::on_failure1(std::span<const std::byte> buffer) {
    const auto decoded = decode_failure(buffer);
    end({.state = AuthState::kFailed,
         .failure = decoded ? decoded.message->explanation : AuthFailure::kAuthenticationFailed,
         .failed_by_peer = true,
         .why = "the controller refused"});
}

std::vector<std::byte> DhchapHost::on_challenge(std::span<const std::byte> buffer) {
    const auto decoded = decode_challenge(buffer);
    if (!decoded) return fail(decoded.failure, "the challenge is malformed");
    const Challenge& challenge = *decoded.message;
    if (challenge.transaction != options_.transaction)
        return fail(AuthFailure::kIncorrectPayload, "the challenge belongs to another transaction");
    if (!options_.policy.allows(challenge.hash))
        return fail(AuthFailure::kHashNotUsable, "the controller chose a hash that was not offered");
    if (!options_.policy.allows(challenge.group))
        return fail(AuthFailure::kGroupNotUsable, "the controller chose a group that was not offered");
    hash_ = challenge.hash;
    Reply reply;
    reply.transaction = options_.transaction;
    if (const auto failure = exchange(challenge, reply))
        return fail(*failure, "the Diffie-Hellman exchange failed");
    const auto response = respond(hash_, challenge.challenge, challenge.sequence, host_key_, true);
    if (!response.ok()) return fail(AuthFailure::kAuthenticationFailed, "the response could not be computed");
    reply.response.assign(response->view().begin(), response->view().end());
    if (!controller_key_.empty() && !challenge_controller(challenge, reply))
        return fail(AuthFailure::kAuthenticationFailed, "the controller could not be challenged");
    step_ = Step::kAwaitSuccess1;
    return encode(reply);
}

std::optional<AuthFailure> DhchapHost::exchange(const Challenge& challenge, Reply& reply) {
    if (challenge.group == GroupId::kNull) return std::nullopt;
    const auto pair = FfdheKeyPair::generate(challenge.group, random_);
    if (!pair.ok()) return AuthFailure::kAuthenticationFailed;
    auto shared = pair->shared_secret(challenge.public_value);
    if (!shared.ok())
        return shared.error().code == Errc::kInvalidArgument ? AuthFailure::kIncorrectPayload
                                                             : AuthFailure::kAuthenticationFailed;
    session_key_ = std::move(shared).value();
    reply.public_value.assign(pair->public_value().begin(), pair->public_value().end());
    return std::nullopt;
}

bool DhchapHost::challenge_controller(const Challenge& challenge, Reply& reply) {
    const auto sequence = draw_sequence(random_);
    reply.challenge.resize(hash_bytes(hash_));
    if (!sequence || !random_(reply.challenge)) return false;
    // With C2 = C1 the randomness of one end is broken.
    if (std::ranges::equal(reply.challenge, challenge.challenge)) return false;
    reply.sequence = *sequence;
    auto expected = respond(hash_, reply.challenge, *sequence, controller_key_, false);
    if (!expected.ok()) return false;
    expected_ = std::move(expected).value();
    return true;
}

Result<Secret> DhchapHost::respond(HashId hash, std::span<const std::byte> challenge, std::uint32_t sequence,
                                   const Secret& key, bool of_host) const {
    GN_ASSIGN(const Secret augmented, augmented_challenge(hash, session_key_.view(), challenge));
    const ResponseInput input{.hash = hash,
                              .key = key.view(),
                              .challenge = augmented.view(),
                              .sequence = sequence,
                              .transaction = options_.transaction,
                              .concatenation = 0,
                              .host_nqn = options_.host_nqn,
                              .subsystem_nqn = options_.subsystem_nqn};
    return of_host ? host_response(input) : controller_response(input);
}

std::vector<std::byte> DhchapHost::on_success1(std::span<const std::byte> buffer) {
    const auto decoded = decode_success1(buffer, hash_);
    if (!decoded) return fail(decoded.failure, "Success1 is malformed");
    const Success1& success = *decoded.message;
    if (success.transaction != options_.transaction)
        return fail(AuthFailure::kIncorrectPayload, "Success1 belongs to another transaction");
    if (expected_.empty()) {
        if (!success.response.empty())
            return fail(AuthFailure::kIncorrectPayload,
                        "the controller sent a proof that this host did not ask for");
        end({.state = AuthState::kAuthenticated});
        return {};
    }
    // Also where the controller leaves the proof out, which Linux as a host accepts.
    if (!expected_.equals(success.response))
        return fail(AuthFailure::kAuthenticationFailed, "the controller did not prove its key");
    end({.state = AuthState::kAuthenticated});
    return encode(Success2{options_.transaction});
}

std::vector<std::byte> DhchapHost::fail(AuthFailure failure, const char* why) {
    if (outcome_.state == AuthState::kFailed) return {};
    end({.state = AuthState::kFailed, .failure = failure, .why = why});
    return encode(Failure{options_.transaction, failure}, MessageKind::kFailure2);
}

void DhchapHost::end(AuthOutcome outcome) {
    step_ = Step::kEnd;
    outcome_ = outcome;
    for (Secret* secret : {&host_key_, &controller_key_, &session_key_, &expected_}) secret->wipe();
}

}  // namespace gnstor::nvmf::auth
