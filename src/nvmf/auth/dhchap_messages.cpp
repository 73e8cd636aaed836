#include "nvmf/auth/dhchap_messages.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace gnstor::nvmf::auth {

static_assert(std::endian::native == std::endian::little, "the wire structures are read in place");

namespace {

struct TypeAndId {
    std::uint8_t type;
    std::uint8_t id;
    MessageKind kind;
};
constexpr TypeAndId kKinds[] = {
    {0x00, 0x00, MessageKind::kNegotiate}, {0x01, 0x01, MessageKind::kChallenge},
    {0x01, 0x02, MessageKind::kReply},     {0x01, 0x03, MessageKind::kSuccess1},
    {0x01, 0x04, MessageKind::kSuccess2},  {0x00, 0xF1, MessageKind::kFailure1},
    {0x00, 0xF0, MessageKind::kFailure2},
};
constexpr std::uint8_t kReasonFailed = 1;

MessageHeader header_of(MessageKind kind, std::uint16_t transaction) {
    for (const TypeAndId& known : kKinds)
        if (known.kind == kind) return {known.type, known.id, {}, transaction};
    return {};
}

template <class T>
void append(std::vector<std::byte>& to, const T& record) {
    const auto* from = reinterpret_cast<const std::byte*>(&record);
    to.insert(to.end(), from, from + sizeof record);
}
void append_bytes(std::vector<std::byte>& to, std::span<const std::byte> bytes) {
    to.insert(to.end(), bytes.begin(), bytes.end());
}

bool all_zero(std::span<const std::byte> bytes) {
    return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}
bool all_zero(std::span<const std::uint8_t> bytes) {
    return all_zero(std::as_bytes(bytes));
}

/// Reads a structure from the front of the bytes; false: they are too few.
template <class T>
bool read(std::span<const std::byte>& bytes, T& record) {
    if (bytes.size() < sizeof record) return false;
    std::memcpy(&record, bytes.data(), sizeof record);
    bytes = bytes.subspan(sizeof record);
    return true;
}
/// Takes so many bytes from the front, which must be there.
std::vector<std::byte> take(std::span<const std::byte>& bytes, std::size_t count) {
    const auto front = bytes.first(count);
    bytes = bytes.subspan(count);
    return {front.begin(), front.end()};
}

bool is_header(const MessageHeader& header, MessageKind kind) {
    const MessageHeader good = header_of(kind, header.transaction);
    return std::memcmp(&header, &good, sizeof header) == 0;
}

/// Adds the identifiers of a descriptor that we know. False: a reserved or repeated one, or rubbish behind
/// them.
template <class Id>
bool add_ids(std::span<const std::uint8_t, kIdsMax> ids, std::size_t count, bool (*known)(std::uint8_t),
             bool zero_is_reserved, std::vector<Id>& to) {
    if (count > ids.size() || !all_zero(ids.subspan(count))) return false;
    for (std::size_t i = 0; i < count; ++i) {
        const auto before = ids.first(i);
        if (std::find(before.begin(), before.end(), ids[i]) != before.end()) return false;
        if (zero_is_reserved && ids[i] == 0) return false;
        if (known(ids[i])) to.push_back(static_cast<Id>(ids[i]));
    }
    return true;
}

}  // namespace

std::optional<MessageKind> kind_of(std::span<const std::byte> bytes) {
    MessageHeader header{};
    if (!read(bytes, header)) return std::nullopt;
    for (const TypeAndId& known : kKinds)
        if (known.type == header.type && known.id == header.id) return known.kind;
    return std::nullopt;
}

std::uint16_t transaction_of(std::span<const std::byte> bytes) {
    MessageHeader header{};
    read(bytes, header);
    return header.transaction;
}

std::vector<std::byte> encode(const Negotiate& message) {
    ProtocolDescriptor descriptor{};
    descriptor.protocol = kDhchapProtocol;
    descriptor.hashes = static_cast<std::uint8_t>(message.hashes.size());
    descriptor.groups = static_cast<std::uint8_t>(message.groups.size());
    for (std::size_t i = 0; i < message.hashes.size() && i < kIdsMax; ++i)
        descriptor.hash_ids[i] = static_cast<std::uint8_t>(message.hashes[i]);
    for (std::size_t i = 0; i < message.groups.size() && i < kIdsMax; ++i)
        descriptor.group_ids[i] = static_cast<std::uint8_t>(message.groups[i]);
    std::vector<std::byte> bytes;
    append(bytes, NegotiateHeader{header_of(MessageKind::kNegotiate, message.transaction), 0, 1});
    append(bytes, descriptor);
    return bytes;
}

std::vector<std::byte> encode(const Challenge& message) {
    ChallengeHeader header{};
    header.header = header_of(MessageKind::kChallenge, message.transaction);
    header.hash_length = static_cast<std::uint8_t>(message.challenge.size());
    header.hash = static_cast<std::uint8_t>(message.hash);
    header.group = static_cast<std::uint8_t>(message.group);
    header.public_length = static_cast<std::uint16_t>(message.public_value.size());
    header.sequence = message.sequence;
    std::vector<std::byte> bytes;
    append(bytes, header);
    append_bytes(bytes, message.challenge);
    append_bytes(bytes, message.public_value);
    return bytes;
}

std::vector<std::byte> encode(const Reply& message) {
    ReplyHeader header{};
    header.header = header_of(MessageKind::kReply, message.transaction);
    header.hash_length = static_cast<std::uint8_t>(message.response.size());
    header.challenge_valid = message.challenge.empty() ? 0 : 1;
    header.public_length = static_cast<std::uint16_t>(message.public_value.size());
    header.sequence = message.sequence;
    std::vector<std::byte> bytes;
    append(bytes, header);
    append_bytes(bytes, message.response);
    if (message.challenge.empty())
        bytes.resize(bytes.size() + message.response.size());
    else
        append_bytes(bytes, message.challenge);
    append_bytes(bytes, message.public_value);
    return bytes;
}

std::vector<std::byte> encode(const Success1& message, HashId hash) {
    Success1Header header{};
    header.header = header_of(MessageKind::kSuccess1, message.transaction);
    header.hash_length =
        static_cast<std::uint8_t>(hash_bytes(hash));  // Linux demands it without a response, too
    header.response_valid = message.response.empty() ? 0 : 1;
    std::vector<std::byte> bytes;
    append(bytes, header);
    append_bytes(bytes, message.response);
    return bytes;
}

std::vector<std::byte> encode(const Success2& message) {
    std::vector<std::byte> bytes;
    append(bytes, Success2Message{header_of(MessageKind::kSuccess2, message.transaction), {}});
    return bytes;
}

std::vector<std::byte> encode(const Failure& message, MessageKind kind) {
    std::vector<std::byte> bytes;
    append(bytes, FailureMessage{header_of(kind, message.transaction), kReasonFailed,
                                 static_cast<std::uint8_t>(message.explanation)});
    return bytes;
}

Decoded<Negotiate> decode_negotiate(std::span<const std::byte> bytes) {
    NegotiateHeader header{};
    if (!read(bytes, header) || !is_header(header.header, MessageKind::kNegotiate))
        return AuthFailure::kIncorrectPayload;
    if (header.descriptors == 0 || bytes.size() != header.descriptors * sizeof(ProtocolDescriptor))
        return AuthFailure::kIncorrectPayload;
    if (header.concatenation != 0) return AuthFailure::kConcatenationMismatch;
    Negotiate message{.transaction = header.header.transaction, .hashes = {}, .groups = {}};
    bool found = false;
    for (ProtocolDescriptor d{}; read(bytes, d);) {
        if (d.protocol != kDhchapProtocol) continue;
        if (std::exchange(found, true) || d.reserved != 0) return AuthFailure::kIncorrectPayload;
        if (!add_ids(std::span<const std::uint8_t, kIdsMax>(d.hash_ids), d.hashes, is_hash, true,
                     message.hashes) ||
            !add_ids(std::span<const std::uint8_t, kIdsMax>(d.group_ids), d.groups, is_group, false,
                     message.groups))
            return AuthFailure::kIncorrectPayload;
    }
    if (!found) return AuthFailure::kProtocolNotUsable;
    return message;
}

Decoded<Challenge> decode_challenge(std::span<const std::byte> buffer) {
    ChallengeHeader header{};
    if (!read(buffer, header) || !is_header(header.header, MessageKind::kChallenge) || header.reserved7 != 0)
        return AuthFailure::kIncorrectPayload;
    if (!is_hash(header.hash)) return AuthFailure::kHashNotUsable;
    if (!is_group(header.group)) return AuthFailure::kGroupNotUsable;
    Challenge message;
    message.transaction = header.header.transaction;
    message.hash = static_cast<HashId>(header.hash);
    message.group = static_cast<GroupId>(header.group);
    message.sequence = header.sequence;
    const std::size_t hash_length = hash_bytes(message.hash);
    const std::size_t public_length = group_bytes(message.group);
    if (header.hash_length != hash_length || header.public_length != public_length || header.sequence == 0 ||
        buffer.size() < hash_length + public_length)
        return AuthFailure::kIncorrectPayload;
    message.challenge = take(buffer, hash_length);
    message.public_value = take(buffer, public_length);
    return message;
}

Decoded<Reply> decode_reply(std::span<const std::byte> bytes, HashId hash, GroupId group) {
    ReplyHeader header{};
    if (!read(bytes, header) || !is_header(header.header, MessageKind::kReply) || header.reserved7 != 0 ||
        header.reserved9 != 0 || header.challenge_valid > 1)
        return AuthFailure::kIncorrectPayload;
    const std::size_t hash_length = hash_bytes(hash);
    const std::size_t public_length = group_bytes(group);
    if (header.hash_length != hash_length || header.public_length != public_length ||
        bytes.size() != 2 * hash_length + public_length)
        return AuthFailure::kIncorrectPayload;
    // 0 with a challenge belongs to the concatenation of a secure channel. Linux (6.12) draws S2 without a
    // challenge, too, where the specification wants 0; nothing is computed from it then.
    if (header.challenge_valid == 1 && header.sequence == 0) return AuthFailure::kIncorrectPayload;
    Reply message;
    message.transaction = header.header.transaction;
    message.sequence = header.challenge_valid == 1 ? header.sequence : 0;
    message.response = take(bytes, hash_length);
    message.challenge = take(bytes, hash_length);
    if (header.challenge_valid == 0) {
        if (!all_zero(message.challenge)) return AuthFailure::kIncorrectPayload;
        message.challenge.clear();
    }
    message.public_value = take(bytes, public_length);
    return message;
}

Decoded<Success1> decode_success1(std::span<const std::byte> buffer, HashId hash) {
    Success1Header header{};
    if (!read(buffer, header) || !is_header(header.header, MessageKind::kSuccess1) || header.reserved7 != 0 ||
        header.response_valid > 1 || !all_zero(std::span<const std::uint8_t>(header.reserved9)))
        return AuthFailure::kIncorrectPayload;
    if (header.hash_length != hash_bytes(hash)) return AuthFailure::kIncorrectPayload;
    Success1 message{.transaction = header.header.transaction, .response = {}};
    if (header.response_valid == 1) {
        if (buffer.size() < header.hash_length) return AuthFailure::kIncorrectPayload;
        message.response = take(buffer, header.hash_length);
    }
    return message;
}

Decoded<Success2> decode_success2(std::span<const std::byte> bytes) {
    Success2Message message{};
    if (!read(bytes, message) || !bytes.empty() || !is_header(message.header, MessageKind::kSuccess2) ||
        !all_zero(std::span<const std::uint8_t>(message.reserved6)))
        return AuthFailure::kIncorrectPayload;
    return Success2{message.header.transaction};
}

Decoded<Failure> decode_failure(std::span<const std::byte> buffer) {
    FailureMessage message{};
    if (!read(buffer, message) || (!is_header(message.header, MessageKind::kFailure1) &&
                                   !is_header(message.header, MessageKind::kFailure2)))
        return AuthFailure::kIncorrectPayload;
    const bool known =
        message.reason == kReasonFailed && message.explanation >= 1 && message.explanation <= 7;
    return Failure{message.header.transaction, known ? static_cast<AuthFailure>(message.explanation)
                                                     : AuthFailure::kAuthenticationFailed};
}

}  // namespace gnstor::nvmf::auth
