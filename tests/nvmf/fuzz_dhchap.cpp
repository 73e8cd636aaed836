// fuzz_dhchap.cpp: any bytes as messages of DH-HMAC-CHAP, and as a host in front of the controller's state
// machine.
//
// The input is a sequence of steps: an opcode, two bytes of length, and a message. What must hold for
// any input: the controller does not trust a host that does not know the key, its answers are messages, and a
// transaction that failed stays so. Half of the steps mend the header, so that inputs get past it.
#include "dhchap_rig.hpp"
#include "nvmf/auth/auth_command.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>

using namespace gnstor::nvmf::auth;

namespace {

void require(bool holds) {
    if (!holds) std::abort();
}

/// What a reply encodes to again: without a challenge its sequence number, which means nothing then, is zero.
rig::Bytes without_unused_sequence(rig::Bytes bytes, const Reply& reply) {
    if (reply.challenge.empty())
        std::fill_n(bytes.begin() + offsetof(ReplyHeader, sequence), sizeof(ReplyHeader::sequence),
                    std::byte{0});
    return bytes;
}

void decode_all(const rig::Bytes& bytes) {
    const auto negotiate = decode_negotiate(bytes);
    if (negotiate)
        require(negotiate.message->hashes.size() <= kIdsMax && negotiate.message->groups.size() <= kIdsMax);
    const auto challenge = decode_challenge(bytes);
    if (challenge) {
        const rig::Bytes again = encode(*challenge.message);
        require(again.size() <= bytes.size() && std::equal(again.begin(), again.end(), bytes.begin()));
    }
    for (const HashId hash : {HashId::kSha256, HashId::kSha512}) {
        const auto reply = decode_reply(bytes, hash, GroupId::kNull);
        if (reply) require(encode(*reply.message) == without_unused_sequence(bytes, *reply.message));
        (void)decode_success1(bytes, hash);
    }
    (void)decode_success2(bytes);
    (void)decode_failure(bytes);
    (void)DhchapKey::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    gnstor::nvme::Command command{};
    if (bytes.size() >= sizeof command)
        std::memcpy(static_cast<void*>(&command), bytes.data(), sizeof command);
    const auto verdict = parse_auth_command(command);
    require(verdict.bytes <= kAuthMessageBytesMax);
}

/// The message that is due, or what the input made of it.
rig::Bytes next_message(std::uint8_t shape, rig::Bytes bytes) {
    static constexpr std::uint8_t kHeaders[][2] = {{0, 0}, {1, 2}, {1, 4}, {0, 0xF0}};
    if ((shape & 1) != 0 && bytes.size() >= 6) {
        const auto& header = kHeaders[(shape >> 1) & 3];
        bytes[0] = std::byte{header[0]};
        bytes[1] = std::byte{header[1]};
        std::fill(bytes.begin() + 2, bytes.begin() + 6, std::byte{0});
    }
    return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 1) return 0;
    rig::Scenario scenario;
    scenario.seed = data[0];
    DhchapPolicy policy;
    policy.allow_null_group = true;
    policy.groups = {GroupId::kFfdhe2048};
    DhchapController controller = rig::make_controller(scenario, policy);
    for (std::size_t at = 1; at + 3 <= size;) {
        const std::uint8_t shape = data[at];
        const std::size_t wanted = data[at + 1] | (std::size_t{data[at + 2]} << 8);
        at += 3;
        const std::size_t length = std::min(wanted, size - at);
        // A copy of the exact size: the sanitizer sees a read past the end.
        const auto* from = reinterpret_cast<const std::byte*>(data) + at;
        const rig::Bytes message = next_message(shape, rig::Bytes(from, from + length));
        at += length;
        decode_all(message);
        const AuthState before = controller.outcome().state;
        if ((shape & 8) != 0) controller.on_send(message);
        if ((shape & 16) != 0) {
            const std::size_t room = (shape & 32) != 0 ? length : kAuthMessageBytesMax;
            const auto answer = controller.on_receive(static_cast<std::uint32_t>(room));
            require(answer.message.size() <= room);
            if (gnstor::nvme::ok(answer.status)) require(kind_of(answer.message).has_value());
        }
        require(controller.outcome().state != AuthState::kAuthenticated);
        if (before == AuthState::kFailed) require(controller.outcome().state == AuthState::kFailed);
    }
    return 0;
}
