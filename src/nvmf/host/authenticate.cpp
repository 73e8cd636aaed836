#include "nvmf/host/authenticate.hpp"

#include "nvmf/auth/auth_command.hpp"
#include "nvmf/auth/dhchap_host.hpp"
#include "nvmf/auth/random.hpp"

#include <gnstor/nvme/fabrics.hpp>

#include <utility>
#include <vector>

namespace gnstor::nvmf {

namespace {

Result<void> check_answer(const char* what, const QueueNames& names, const nvme::Completion& answer) {
    if (nvme::ok(answer.result())) return {};
    return error(Errc::kPermission, "{} to queue {} of {} as {} was refused: {} ({:#05x})", what,
                 names.queue_id, names.subsystem_nqn, names.host_nqn, nvme::status_name(answer.result()),
                 static_cast<std::uint32_t>(answer.result()));
}

/// Over RDMA, Linux as a controller (6.12) ends the connection of a host that it refuses before it has sent
/// AUTH_Failure1.
Error unanswered(const QueueNames& names, const Error& why) {
    return error(
        why.code,
        "{} could not authenticate to queue {} of {}: {}; if the controller ended it, the key of this "
        "host may be wrong, rotated or removed",
        names.host_nqn, names.queue_id, names.subsystem_nqn, why.message);
}

Error failed(const QueueNames& names, const auth::AuthOutcome& outcome) {
    const bool unusable = outcome.failure == auth::AuthFailure::kHashNotUsable ||
                          outcome.failure == auth::AuthFailure::kGroupNotUsable;
    const char* const advice =
        unusable ? "let the controller use a hash and a group that this host offers (security.md, Keys)"
        : outcome.failed_by_peer
            ? "the key of this host is wrong, was rotated or removed"
            : "the answer does not prove the controller's key: another program may listen at its address";
    return error(Errc::kPermission, "{} could not authenticate to queue {} of {}: {}; {}", names.host_nqn,
                 names.queue_id, names.subsystem_nqn, outcome.why, advice);
}

}  // namespace

Result<HostAuthentication> parse_host_authentication(std::string_view host_key,
                                                     std::string_view controller_key) {
    auto host = auth::DhchapKey::parse(host_key);
    if (!host.ok()) return error(host.error().code, "the key of the host: {}", host.error().message);
    HostAuthentication keys{std::move(host).value(), std::nullopt, {}, true};
    if (controller_key.empty()) return keys;
    auto controller = auth::DhchapKey::parse(controller_key);
    if (!controller.ok())
        return error(controller.error().code, "the key of the controller: {}", controller.error().message);
    keys.controller_key = std::move(controller).value();
    keys.policy.require_bidirectional = true;
    return keys;
}

Result<void> authenticate(const QueueNames& names, std::uint32_t connect_dw0, const HostAuthentication* keys,
                          const AuthCommands& commands) {
    if ((connect_dw0 & nvme::kConnectSecureChannel) != 0)
        return error(
            Errc::kUnsupported,
            "queue {} of {} demands authentication over a secure channel (TLS), which this host does "
            "not offer",
            names.queue_id, names.subsystem_nqn);
    const bool asked = (connect_dw0 & nvme::kConnectAuthenticate) != 0;
    if (!asked && (keys == nullptr || !keys->required)) return {};
    if (keys == nullptr)
        return error(
            Errc::kPermission,
            "queue {} of {} demands authentication, and {} has no key for it; the administrator of the "
            "target has to give it one",
            names.queue_id, names.subsystem_nqn, names.host_nqn);
    if (!asked)
        return error(
            Errc::kPermission,
            "queue {} of {} does not ask {} to authenticate, although there is a key for it: another "
            "program may listen at its address, or the node runs an older version or with "
            "--no-authentication; restart the node",
            names.queue_id, names.subsystem_nqn, names.host_nqn);
    auth::DhchapHostOptions options{names.host_nqn, names.subsystem_nqn, names.queue_id, keys->policy};
    GN_ASSIGN(auth::DhchapHost host,
              auth::DhchapHost::create(std::move(options), keys->host_key,
                                       keys->controller_key ? &*keys->controller_key : nullptr,
                                       auth::system_random()));
    std::vector<std::byte> message = host.start();
    std::vector<std::byte> buffer(auth::kAuthMessageBytesMax);
    for (;;) {
        if (!message.empty()) {
            const auto length = static_cast<std::uint32_t>(message.size());
            const Result<nvme::Completion> sent =
                commands.send(auth::auth_command(auth::AuthDirection::kSend, length), message);
            // AUTH_Failure2: Linux as a controller (6.12) ends the connection in place of an answer.
            if (host.outcome().state == auth::AuthState::kFailed) break;
            if (!sent.ok()) return unanswered(names, sent.error());
            GN_TRY(check_answer("Authentication Send", names, *sent));
        }
        if (!host.awaits_message()) break;
        const auto room = static_cast<std::uint32_t>(buffer.size());
        const Result<nvme::Completion> received =
            commands.receive(auth::auth_command(auth::AuthDirection::kReceive, room), buffer);
        if (!received.ok()) return unanswered(names, received.error());
        GN_TRY(check_answer("Authentication Receive", names, *received));
        message = host.on_message(buffer);
    }
    if (host.outcome().state == auth::AuthState::kAuthenticated) return {};
    return failed(names, host.outcome());
}

}  // namespace gnstor::nvmf
