#include "nvmf/auth/dhchap_controller.hpp"

#include <algorithm>
#include <utility>

namespace gnstor::nvmf::auth {

namespace {

constexpr std::size_t kStandInBytes = 32;

/// The first of our preferences that the host offers as well.
template <class Id>
std::optional<Id> first_common(const std::vector<Id>& ours, const std::vector<Id>& theirs) {
    const auto found = std::find_first_of(ours.begin(), ours.end(), theirs.begin(), theirs.end());
    if (found == ours.end()) return std::nullopt;
    return *found;
}

}  // namespace

Result<DhchapController> DhchapController::create(DhchapControllerOptions options, const DhchapKeyStore& keys,
                                                  FillRandom random) {
    GN_TRY(options.policy.check());
    DhchapController controller(std::move(options), std::move(random));
    GN_TRY(controller.take_keys(keys.find(controller.options_.host_nqn)));
    return controller;
}

Result<void> DhchapController::take_keys(const DhchapKeys* keys) {
    // A stand-in is drawn for every host, and takes the place of each key that is missing: the work that is
    // done does not tell which hosts have keys (but for the hash that transforms a key, a microsecond).
    Secret drawn(kStandInBytes);
    if (!random_(drawn.writable()))
        return error(Errc::kInternal, "DH-HMAC-CHAP: no random bytes for a challenge");
    GN_ASSIGN(const DhchapKey stand_in, DhchapKey::from_bytes(KeyTransform::kSha256, drawn.view()));
    host_known_ = keys != nullptr;
    const bool can_prove = host_known_ && keys->controller;
    const DhchapKey& host_key = host_known_ ? keys->host : stand_in;
    const DhchapKey& controller_key = can_prove ? *keys->controller : stand_in;
    GN_ASSIGN(host_key_, host_key.transform(options_.host_nqn));
    GN_ASSIGN(Secret proof_key, controller_key.transform(options_.subsystem_nqn));
    if (can_prove) controller_key_ = std::move(proof_key);
    return {};
}

void DhchapController::on_send(std::span<const std::byte> message) {
    const auto kind = kind_of(message);
    if (!kind || message.size() > kAuthMessageBytesMax)
        return fail(AuthFailure::kIncorrectPayload, "the host sent bytes that are no message");
    if (*kind == MessageKind::kNegotiate && step_ == Step::kAwaitNegotiate) return on_negotiate(message);
    if (*kind == MessageKind::kFailure2 && step_ != Step::kEnd) return on_failure2(message);
    if (*kind == MessageKind::kReply && step_ == Step::kAwaitReply) return on_reply(message);
    if (*kind == MessageKind::kSuccess2 && step_ == Step::kAwaitSuccess2) return on_success2(message);
    fail(AuthFailure::kIncorrectMessage, "the host sent a message that was not expected");
}

void DhchapController::on_negotiate(std::span<const std::byte> message) {
    transaction_ = transaction_of(message);
    const auto decoded = decode_negotiate(message);
    if (!decoded) return fail(decoded.failure, "AUTH_Negotiate is malformed or asks for what is not offered");
    const auto hash = first_common(options_.policy.hashes, decoded.message->hashes);
    if (!hash) return fail(AuthFailure::kHashNotUsable, "the host offers no hash that the policy allows");
    const auto group = first_common(options_.policy.all_groups(), decoded.message->groups);
    if (!group) return fail(AuthFailure::kGroupNotUsable, "the host offers no group that the policy allows");
    hash_ = *hash;
    group_ = *group;
    if (!make_challenge()) return fail(AuthFailure::kAuthenticationFailed, "no challenge could be made");
    step_ = Step::kOfferChallenge;
}

bool DhchapController::make_challenge() {
    const auto sequence = draw_sequence(random_);
    challenge_.resize(hash_bytes(hash_));
    if (!sequence || !random_(challenge_)) return false;
    sequence_ = *sequence;
    Challenge message{.transaction = transaction_,
                      .hash = hash_,
                      .group = group_,
                      .sequence = sequence_,
                      .challenge = challenge_,
                      .public_value = {}};
    if (group_ != GroupId::kNull) {
        auto pair = FfdheKeyPair::generate(group_, random_);
        if (!pair.ok()) return false;
        pair_ = std::move(pair).value();
        message.public_value.assign(pair_->public_value().begin(), pair_->public_value().end());
    }
    offered_ = encode(message);
    return true;
}

ResponseInput DhchapController::response_input(std::span<const std::byte> augmented, std::uint32_t sequence,
                                               const Secret& key) const {
    return {.hash = hash_,
            .key = key.view(),
            .challenge = augmented,
            .sequence = sequence,
            .transaction = transaction_,
            .concatenation = 0,
            .host_nqn = options_.host_nqn,
            .subsystem_nqn = options_.subsystem_nqn};
}

Result<bool> DhchapController::proves_host(const Reply& reply) {
    if (pair_) {
        GN_ASSIGN(session_key_, pair_->shared_secret(reply.public_value));
    }
    GN_ASSIGN(const Secret augmented, augmented_challenge(hash_, session_key_.view(), challenge_));
    GN_ASSIGN(const Secret expected, host_response(response_input(augmented.view(), sequence_, host_key_)));
    const bool equal = expected.equals(reply.response);
    return equal && host_known_;
}

void DhchapController::on_reply(std::span<const std::byte> message) {
    const auto decoded = decode_reply(message, hash_, group_);
    if (!decoded) return fail(decoded.failure, "the reply is malformed");
    const Reply& reply = *decoded.message;
    if (reply.transaction != transaction_)
        return fail(AuthFailure::kIncorrectPayload, "the reply belongs to another transaction");
    // Reflection: a host that returns this controller's own values would have it compute the response that
    // the host must give.
    if (std::ranges::equal(reply.challenge, challenge_))
        return fail(AuthFailure::kAuthenticationFailed, "the host sent the controller's challenge back");
    if (pair_ && std::ranges::equal(reply.public_value, pair_->public_value()))
        return fail(AuthFailure::kIncorrectPayload, "the host sent the controller's public value back");
    const auto proved = proves_host(reply);
    if (!proved.ok() && proved.error().code == Errc::kInvalidArgument)
        return fail(AuthFailure::kIncorrectPayload, "the host's public value is not in the group");
    if (!proved.ok()) return fail(AuthFailure::kAuthenticationFailed, "the response could not be computed");
    if (!*proved) return fail(AuthFailure::kAuthenticationFailed, "the host did not prove a key");
    bidirectional_ = !reply.challenge.empty();
    if (!bidirectional_ && options_.policy.require_bidirectional)
        return fail(AuthFailure::kAuthenticationFailed, "the policy requires that the host asks for a proof");
    offer_success1(reply);
}

void DhchapController::offer_success1(const Reply& reply) {
    Success1 message{.transaction = transaction_, .response = {}};
    if (bidirectional_) {
        if (controller_key_.empty())
            return fail(AuthFailure::kAuthenticationFailed,
                        "the host asks for a proof, but there is no key for it");
        const auto augmented = augmented_challenge(hash_, session_key_.view(), reply.challenge);
        if (!augmented.ok())
            return fail(AuthFailure::kAuthenticationFailed, "the proof could not be computed");
        const auto proof =
            controller_response(response_input(augmented->view(), reply.sequence, controller_key_));
        if (!proof.ok()) return fail(AuthFailure::kAuthenticationFailed, "the proof could not be computed");
        message.response.assign(proof->view().begin(), proof->view().end());
    }
    offered_ = encode(message, hash_);
    step_ = Step::kOfferSuccess1;
}

void DhchapController::on_success2(std::span<const std::byte> message) {
    const auto decoded = decode_success2(message);
    if (!decoded) return fail(decoded.failure, "Success2 is malformed");
    if (decoded.message->transaction != transaction_)
        return fail(AuthFailure::kIncorrectPayload, "Success2 belongs to another transaction");
    end({.state = AuthState::kAuthenticated});
}

void DhchapController::on_failure2(std::span<const std::byte> message) {
    const auto decoded = decode_failure(message);
    end({.state = AuthState::kFailed,
         .failure = decoded ? decoded.message->explanation : AuthFailure::kAuthenticationFailed,
         .failed_by_peer = true,
         .why = "the host gave up"});
}

DhchapController::Answer DhchapController::on_receive(std::uint32_t allocation_length) {
    const bool offers = step_ == Step::kOfferChallenge || step_ == Step::kOfferSuccess1;
    if (!offers && outcome_.state != AuthState::kFailed)
        fail(AuthFailure::kIncorrectMessage, "the host fetched a message when there was none");
    if (outcome_.state == AuthState::kFailed)
        offered_ = encode(Failure{transaction_, outcome_.failure}, MessageKind::kFailure1);
    if (offered_.size() > allocation_length) return {.status = nvme::Status::kInvalidField, .message = {}};
    Answer answer{.status = nvme::Status::kSuccess, .message = std::exchange(offered_, {})};
    if (step_ == Step::kOfferChallenge) {
        step_ = Step::kAwaitReply;
    } else if (step_ == Step::kOfferSuccess1) {
        if (bidirectional_)
            step_ = Step::kAwaitSuccess2;
        else
            end({.state = AuthState::kAuthenticated});
    }
    return answer;
}

void DhchapController::fail(AuthFailure failure, const char* why) {
    if (outcome_.state == AuthState::kFailed) return;
    end({.state = AuthState::kFailed, .failure = failure, .why = why});
}

void DhchapController::end(AuthOutcome outcome) {
    step_ = Step::kEnd;
    outcome_ = outcome;
    for (Secret* secret : {&host_key_, &controller_key_, &session_key_}) secret->wipe();
    pair_.reset();
}

}  // namespace gnstor::nvmf::auth
