// dhchap_controller.hpp: the controller's end of one DH-HMAC-CHAP transaction.
//
// NVMe Base 2.0, 8.13.5: AUTH_Negotiate in, Challenge out, Reply in, Success1 out, and, where the host
// asked who the controller is, Success2 in. Messages of the host come by Authentication Send (on_send); the
// host fetches ours by Authentication Receive (on_receive).
// Invariants
//   * a host is authenticated only if its reply proved its key in this transaction and the host fetched
//     Success1; where the controller proved its own key, only if the host confirmed that by Success2;
//   * a host without a key is answered as one with a wrong key: it is challenged, a response is computed
//     with a random key, and AUTH_Failure1 gives the same explanation;
//   * any other message ends the transaction as failed, and so does every message after the end; a further
//     authentication takes another object;
//   * keys and shared secrets are wiped when the transaction ends.
// Pure: randomness and keys are arguments, there is no clock (the caller ends a transaction that takes too
// long by dropping the object and the connection). One owner.
#pragma once

#include "nvmf/auth/dhchap_crypto.hpp"
#include "nvmf/auth/dhchap_key.hpp"
#include "nvmf/auth/dhchap_messages.hpp"
#include "nvmf/auth/dhchap_transaction.hpp"

#include <gnstor/base/result.hpp>
#include <gnstor/nvme/status.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gnstor::nvmf::auth {

/// The keys of one host with one subsystem.
struct DhchapKeys {
    DhchapKey host;
    std::optional<DhchapKey> controller;  ///< with it the controller can prove who it is
    [[nodiscard]] DhchapKeys clone() const {
        return {host.clone(), controller ? std::optional(controller->clone()) : std::nullopt};
    }
};
/// Where the controller finds them.
class DhchapKeyStore {
  public:
    virtual ~DhchapKeyStore() = default;
    /// Null: the host has none. What it points to is used before DhchapController::create() returns, not
    /// later.
    [[nodiscard]] virtual const DhchapKeys* find(std::string_view host_nqn) const = 0;
};

struct DhchapControllerOptions {
    std::string host_nqn;  ///< as given at Connect
    std::string subsystem_nqn;
    DhchapPolicy policy;
};

class DhchapController {
  public:
    /// Errors: a bad policy, no randomness, libcrypto. None of them says whether the host has a key.
    static Result<DhchapController> create(DhchapControllerOptions options, const DhchapKeyStore& keys,
                                           FillRandom random);

    /// Takes the data of an Authentication Send. The command is always answered Success; AUTH_Failure1, which
    /// the host fetches next, reports a failure.
    void on_send(std::span<const std::byte> message);

    struct Answer {
        nvme::Status status = nvme::Status::kSuccess;
        std::vector<std::byte> message;
    };
    /// Answers an Authentication Receive with room for so many bytes. Invalid Field: the message is longer;
    /// it can be fetched again with more room.
    [[nodiscard]] Answer on_receive(std::uint32_t allocation_length);

    [[nodiscard]] const AuthOutcome& outcome() const { return outcome_; }

  private:
    enum class Step : std::uint8_t {
        kAwaitNegotiate,
        kOfferChallenge,
        kAwaitReply,
        kOfferSuccess1,
        kAwaitSuccess2,
        kEnd,
    };

    DhchapController(DhchapControllerOptions options, FillRandom random)
        : options_(std::move(options)), random_(std::move(random)) {}

    Result<void> take_keys(const DhchapKeys* keys);
    void on_negotiate(std::span<const std::byte> message);
    void on_reply(std::span<const std::byte> message);
    void on_success2(std::span<const std::byte> message);
    void on_failure2(std::span<const std::byte> message);
    /// Makes C1, S1 and the key pair, and the message that carries them.
    bool make_challenge();
    /// Whether the reply proves the host's key.
    Result<bool> proves_host(const Reply& reply);
    void offer_success1(const Reply& reply);
    [[nodiscard]] ResponseInput response_input(std::span<const std::byte> augmented, std::uint32_t sequence,
                                               const Secret& key) const;
    void fail(AuthFailure failure, const char* why);
    void end(AuthOutcome outcome);

    DhchapControllerOptions options_;
    FillRandom random_;
    Step step_ = Step::kAwaitNegotiate;
    AuthOutcome outcome_;
    bool host_known_ = false;
    Secret host_key_;        ///< transformed; random where the host has none
    Secret controller_key_;  ///< transformed; empty: the controller has none
    Secret session_key_;
    std::optional<FfdheKeyPair> pair_;
    std::uint16_t transaction_ = 0;
    HashId hash_{};
    GroupId group_{};
    std::uint32_t sequence_ = 0;        ///< S1
    std::vector<std::byte> challenge_;  ///< C1
    std::vector<std::byte> offered_;    ///< the message that the host may fetch
    bool bidirectional_ = false;
};

}  // namespace gnstor::nvmf::auth
