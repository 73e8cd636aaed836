// dhchap_messages.hpp: the messages of DH-HMAC-CHAP on the wire, encoded and decoded.
//
// NVMe Base 2.0, 8.13.4 (AUTH_Negotiate, AUTH_Failure1 and 2) and 8.13.5 (DH-HMAC-CHAP). Little endian. Any
// bytes are acceptable input. Decoding checks every length, value and reserved field and says which reason
// the answer must give; what a message means in its transaction is the matter of the two state machines. A
// host receives a message in a buffer as long as its Authentication Receive command allowed; Linux as a
// target leaves stale bytes behind the message. So decode_challenge(), decode_success1() and decode_failure()
// ignore what follows the message, while messages to a controller must have their exact length. Pure; any
// thread.
#pragma once

#include "nvmf/auth/dhchap_ids.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace gnstor::nvmf::auth {

inline constexpr std::size_t kAuthMessageBytesMax = 4096;  ///< as Linux has it; the longest takes 1168
inline constexpr std::uint8_t kDhchapProtocol = 0x01;      ///< AUTHID in a protocol descriptor
inline constexpr std::size_t kIdsMax = 30;                 ///< hashes, and groups, of a descriptor

/// What all messages begin with. Base 2.0, 8.13.
struct MessageHeader {
    std::uint8_t type;          ///< AUTH_TYPE: 0 common, 1 DH-HMAC-CHAP
    std::uint8_t id;            ///< AUTH_ID
    std::uint8_t reserved[2];   ///< 0
    std::uint16_t transaction;  ///< T_ID
};
static_assert(sizeof(MessageHeader) == 6 && offsetof(MessageHeader, transaction) == 4,
              "AUTH_TYPE, AUTH_ID, T_ID");

/// Base 2.0, 8.13.4: AUTH_Negotiate. `descriptors` ProtocolDescriptors follow.
struct NegotiateHeader {
    MessageHeader header;
    std::uint8_t concatenation;  ///< SC_C: 0, no secure channel concatenation
    std::uint8_t descriptors;    ///< NAPD
};
static_assert(sizeof(NegotiateHeader) == 8 && offsetof(NegotiateHeader, descriptors) == 7);

/// Base 2.0, 8.13.5.2: the authentication protocol descriptor of DH-HMAC-CHAP.
struct ProtocolDescriptor {
    std::uint8_t protocol;  ///< AUTHID
    std::uint8_t reserved;
    std::uint8_t hashes;        ///< HALEN
    std::uint8_t groups;        ///< DHLEN
    std::uint8_t hash_ids[30];  ///< the first HALEN count
    std::uint8_t group_ids[30];
};
static_assert(sizeof(ProtocolDescriptor) == 64, "a protocol descriptor has 64 bytes");
static_assert(offsetof(ProtocolDescriptor, hash_ids) == 4 && offsetof(ProtocolDescriptor, group_ids) == 34);

/// Base 2.0, 8.13.5.3: DH-HMAC-CHAP_Challenge. The challenge C1 and the controller's public value follow.
struct ChallengeHeader {
    MessageHeader header;
    std::uint8_t hash_length;  ///< HL
    std::uint8_t reserved7;
    std::uint8_t hash;            ///< HashID
    std::uint8_t group;           ///< DHgID
    std::uint16_t public_length;  ///< DHVLEN
    std::uint32_t sequence;       ///< SEQNUM: S1
};
static_assert(sizeof(ChallengeHeader) == 16 && offsetof(ChallengeHeader, hash_length) == 6);
static_assert(offsetof(ChallengeHeader, hash) == 8 && offsetof(ChallengeHeader, group) == 9);
static_assert(offsetof(ChallengeHeader, public_length) == 10 && offsetof(ChallengeHeader, sequence) == 12);

/// Base 2.0, 8.13.5.4: DH-HMAC-CHAP_Reply. The response R1, the challenge C2 (zeros if there is none) and the
/// host's public value follow.
struct ReplyHeader {
    MessageHeader header;
    std::uint8_t hash_length;
    std::uint8_t reserved7;
    std::uint8_t challenge_valid;  ///< CVALID
    std::uint8_t reserved9;
    std::uint16_t public_length;
    std::uint32_t sequence;  ///< S2; 0 without a challenge
};
static_assert(sizeof(ReplyHeader) == 16 && offsetof(ReplyHeader, challenge_valid) == 8);
static_assert(offsetof(ReplyHeader, public_length) == 10 && offsetof(ReplyHeader, sequence) == 12);

/// Base 2.0, 8.13.5.5: DH-HMAC-CHAP_Success1. The response R2 follows if it is valid.
struct Success1Header {
    MessageHeader header;
    std::uint8_t hash_length;
    std::uint8_t reserved7;
    std::uint8_t response_valid;  ///< RVALID
    std::uint8_t reserved9[7];
};
static_assert(sizeof(Success1Header) == 16 && offsetof(Success1Header, response_valid) == 8);

/// Base 2.0, 8.13.5.6: DH-HMAC-CHAP_Success2.
struct Success2Message {
    MessageHeader header;
    std::uint8_t reserved6[10];
};
static_assert(sizeof(Success2Message) == 16);

/// Base 2.0, 8.13.4: AUTH_Failure1 (by the controller) and AUTH_Failure2 (by the host).
struct FailureMessage {
    MessageHeader header;
    std::uint8_t reason;       ///< 1: authentication failed
    std::uint8_t explanation;  ///< AuthFailure
};
static_assert(sizeof(FailureMessage) == 8 && offsetof(FailureMessage, explanation) == 7);

enum class MessageKind : std::uint8_t {
    kNegotiate,
    kChallenge,
    kReply,
    kSuccess1,
    kSuccess2,
    kFailure1,
    kFailure2,
};
/// Which message the bytes begin; nothing: too short, or of no known type.
std::optional<MessageKind> kind_of(std::span<const std::byte> bytes);
/// The T_ID of bytes whose kind is known.
std::uint16_t transaction_of(std::span<const std::byte> bytes);

struct Negotiate {
    std::uint16_t transaction = 0;
    std::vector<HashId> hashes;  ///< those that we know, in the host's order
    std::vector<GroupId> groups;
};
struct Challenge {
    std::uint16_t transaction = 0;
    HashId hash{};
    GroupId group{};
    std::uint32_t sequence = 0;
    std::vector<std::byte> challenge;
    std::vector<std::byte> public_value;
};
struct Reply {
    std::uint16_t transaction = 0;
    std::vector<std::byte> response;
    std::uint32_t sequence = 0;        ///< 0 exactly if there is no challenge
    std::vector<std::byte> challenge;  ///< empty: the host does not ask who the controller is
    std::vector<std::byte> public_value;
};
struct Success1 {
    std::uint16_t transaction = 0;
    std::vector<std::byte> response;  ///< empty: not valid
};
struct Success2 {
    std::uint16_t transaction = 0;
};
struct Failure {
    std::uint16_t transaction = 0;
    AuthFailure explanation{};
};

std::vector<std::byte> encode(const Negotiate& message);
std::vector<std::byte> encode(const Challenge& message);
/// Where the reply has no challenge, zeros as long as the response stand in its place, as from Linux.
std::vector<std::byte> encode(const Reply& message);
std::vector<std::byte> encode(const Success1& message, HashId hash);
std::vector<std::byte> encode(const Success2& message);
/// `kind` is kFailure1 or kFailure2.
std::vector<std::byte> encode(const Failure& message, MessageKind kind);

/// A message, or the reason why the bytes are none.
template <class Message>
struct Decoded {
    std::optional<Message> message;
    AuthFailure failure = AuthFailure::kIncorrectPayload;
    Decoded(Message m) : message(std::move(m)) {}  // NOLINT: implicit by design
    Decoded(AuthFailure f) : failure(f) {}         // NOLINT: implicit by design
    explicit operator bool() const { return message.has_value(); }
};

Decoded<Negotiate> decode_negotiate(std::span<const std::byte> bytes);
Decoded<Challenge> decode_challenge(std::span<const std::byte> buffer);
/// The reply to a challenge of this hash and this group.
Decoded<Reply> decode_reply(std::span<const std::byte> bytes, HashId hash, GroupId group);
Decoded<Success1> decode_success1(std::span<const std::byte> buffer, HashId hash);
Decoded<Success2> decode_success2(std::span<const std::byte> bytes);
/// AUTH_Failure1 or 2; an explanation that the specification does not have counts as kAuthenticationFailed.
Decoded<Failure> decode_failure(std::span<const std::byte> buffer);

}  // namespace gnstor::nvmf::auth
