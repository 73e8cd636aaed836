// dhchap_rig.hpp: both ends of a DH-HMAC-CHAP transaction in one thread, and an attacker on the path
// between them.
//
// Randomness is a hash of a seed and a counter, so a run repeats exactly. One thread.
#pragma once

#include "nvmf/auth/dhchap_controller.hpp"
#include "nvmf/auth/dhchap_host.hpp"

#include <gnstor/base/hash.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace gnstor::nvmf::auth::rig {

using Bytes = std::vector<std::byte>;

inline constexpr const char* kHostNqn =
    "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";
inline constexpr const char* kSubsystemNqn = "nqn.2026-11.io.gnstor:ssd:x";

inline FillRandom random_from(std::uint64_t seed) {
    return [seed, drawn = std::uint64_t{0}](std::span<std::byte> to) mutable {
        for (std::byte& byte : to) byte = std::byte(mix64(seed * 0x9E3779B97F4A7C15u + ++drawn) & 0xFF);
        return true;
    };
}

inline DhchapKey key_of(std::uint8_t seed, KeyTransform transform = KeyTransform::kNone,
                        std::size_t bytes = 32) {
    Bytes material(bytes);
    for (std::size_t i = 0; i < bytes; ++i) material[i] = std::byte((seed * 37 + i * 11) & 0xFF);
    return DhchapKey::from_bytes(transform, material).value();
}

/// Keys of one host.
class OneHost : public DhchapKeyStore {
  public:
    OneHost(std::string nqn, DhchapKeys keys) : nqn_(std::move(nqn)), keys_(std::move(keys)) {}
    [[nodiscard]] const DhchapKeys* find(std::string_view host_nqn) const override {
        return host_nqn == nqn_ ? &keys_ : nullptr;
    }

  private:
    std::string nqn_;
    DhchapKeys keys_;
};

struct Scenario {
    DhchapPolicy policy;
    bool bidirectional = false;
    std::uint16_t transaction = 0;
    std::uint8_t host_key = 1;  ///< seed of the key that the host has; the controller has that of seed 1
    std::uint8_t controller_key = 2;
    std::string host_nqn = kHostNqn;
    std::uint64_t seed = 1;
    bool controller_has_key = true;
};

inline DhchapPolicy only(HashId hash, GroupId group) {
    DhchapPolicy policy;
    policy.hashes = {hash};
    policy.groups.clear();
    policy.allow_null_group = group == GroupId::kNull;
    if (group != GroupId::kNull) policy.groups = {group};
    return policy;
}

inline DhchapHost make_host(const Scenario& s) {
    const DhchapKey host = key_of(s.host_key);
    const DhchapKey controller = key_of(s.controller_key, KeyTransform::kSha384, 48);
    return DhchapHost::create({s.host_nqn, kSubsystemNqn, s.transaction, s.policy}, host,
                              s.bidirectional ? &controller : nullptr, random_from(s.seed))
        .value();
}
inline DhchapController make_controller(const Scenario& s, const DhchapPolicy& policy) {
    DhchapKeys keys{key_of(1), std::nullopt};
    if (s.controller_has_key) keys.controller = key_of(2, KeyTransform::kSha384, 48);
    const OneHost store(kHostNqn, std::move(keys));
    return DhchapController::create({s.host_nqn, kSubsystemNqn, policy}, store, random_from(s.seed + 1000))
        .value();
}

/// Called with the number of each message, from 0; may change it.
using Tamper = std::function<void(std::size_t, Bytes&)>;

struct Exchange {
    AuthOutcome host;
    AuthOutcome controller;
    std::vector<Bytes> messages;  ///< as delivered
    [[nodiscard]] bool both() const {
        return host.state == AuthState::kAuthenticated && controller.state == AuthState::kAuthenticated;
    }
};

inline Exchange exchange(DhchapHost& host, DhchapController& controller, const Tamper& tamper = {}) {
    Exchange run;
    const auto deliver = [&](Bytes& message) {
        if (tamper) tamper(run.messages.size(), message);
        run.messages.push_back(message);
    };
    Bytes to_controller = host.start();
    for (int turn = 0; turn < 8; ++turn) {
        if (!to_controller.empty()) {
            deliver(to_controller);
            controller.on_send(to_controller);
        }
        if (!host.awaits_message()) break;
        Bytes to_host = controller.on_receive(kAuthMessageBytesMax).message;
        deliver(to_host);
        to_controller = host.on_message(to_host);
    }
    run.host = host.outcome();
    run.controller = controller.outcome();
    return run;
}

inline Exchange exchange(const Scenario& scenario, const Tamper& tamper = {}) {
    DhchapHost host = make_host(scenario);
    DhchapController controller = make_controller(scenario, scenario.policy);
    return exchange(host, controller, tamper);
}

}  // namespace gnstor::nvmf::auth::rig
