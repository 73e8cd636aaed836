// dhchap_host.hpp: the host's end of one DH-HMAC-CHAP transaction.
//
// NVMe Base 2.0, 8.13.5: AUTH_Negotiate out, Challenge in, Reply out, Success1 in, and, where the host
// asked who the controller is, Success2 out. The caller sends what start() and on_message() return by
// Authentication Send, and gives what Authentication Receive brings to on_message().
// Invariants
//   * the host is authenticated only after a Success1 of this transaction; with a controller's key only if
//     that message proves the key;
//   * any other message ends the transaction as failed, and so does every message after the end;
//   * keys and shared secrets are wiped when the transaction ends.
// Pure: randomness is an argument, there is no clock (the caller gives up by dropping the object). One owner.
#pragma once

#include "nvmf/auth/dhchap_key.hpp"
#include "nvmf/auth/dhchap_messages.hpp"
#include "nvmf/auth/dhchap_transaction.hpp"

#include <gnstor/base/result.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace gnstor::nvmf::auth {

struct DhchapHostOptions {
    std::string host_nqn;
    std::string subsystem_nqn;
    std::uint16_t transaction = 0;  ///< T_ID; another one for each transaction of an association
    DhchapPolicy policy;
};

class DhchapHost {
  public:
    /// `controller_key`: the host asks for the controller's proof; null: it does not. Errors: a bad policy,
    /// or one that requires a proof while there is no key for it.
    static Result<DhchapHost> create(DhchapHostOptions options, const DhchapKey& host_key,
                                     const DhchapKey* controller_key, FillRandom random);

    /// The first message, AUTH_Negotiate. Once.
    [[nodiscard]] std::vector<std::byte> start();
    /// Takes the buffer of an Authentication Receive. Returns what to send; empty: nothing. A transaction
    /// that failed here returns AUTH_Failure2 once.
    [[nodiscard]] std::vector<std::byte> on_message(std::span<const std::byte> buffer);
    [[nodiscard]] const AuthOutcome& outcome() const { return outcome_; }
    /// Whether the next thing to do is an Authentication Receive.
    [[nodiscard]] bool awaits_message() const {
        return step_ == Step::kAwaitChallenge || step_ == Step::kAwaitSuccess1;
    }

  private:
    enum class Step : std::uint8_t { kStart, kAwaitChallenge, kAwaitSuccess1, kEnd };

    DhchapHost(DhchapHostOptions options, FillRandom random)
        : options_(std::move(options)), random_(std::move(random)) {}

    std::vector<std::byte> on_challenge(std::span<const std::byte> buffer);
    std::vector<std::byte> on_success1(std::span<const std::byte> buffer);
    void on_failure1(std::span<const std::byte> buffer);
    /// Fills in the reply's public value and the session key. The reason why not, if it fails.
    std::optional<AuthFailure> exchange(const Challenge& challenge, Reply& reply);
    /// Chooses C2 and S2, and computes the response that proves the controller's key.
    bool challenge_controller(const Challenge& challenge, Reply& reply);
    Result<Secret> respond(HashId hash, std::span<const std::byte> challenge, std::uint32_t sequence,
                           const Secret& key, bool of_host) const;
    std::vector<std::byte> fail(AuthFailure failure, const char* why);
    void end(AuthOutcome outcome);

    DhchapHostOptions options_;
    FillRandom random_;
    Step step_ = Step::kStart;
    AuthOutcome outcome_;
    Secret host_key_;        ///< transformed
    Secret controller_key_;  ///< transformed; empty: no proof is asked for
    Secret session_key_;     ///< empty with the NULL group
    Secret expected_;        ///< the controller's response; empty: none
    HashId hash_{};
};

}  // namespace gnstor::nvmf::auth
