// messages.hpp: requests and answers between client and node on the socket of the shm wire: one answer
// per request, each a datagram of fixed layout. Both ends are on one machine: native byte order.
#pragma once

#include "rdma/nic/nic.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace gnstor::rdma::shm {

inline constexpr std::uint32_t kMagic = 0x4D53'4E47;  // "GNSM"
inline constexpr std::uint16_t kVersion = 2;
inline constexpr std::size_t kPrivateBytesMax = 512;
inline constexpr std::size_t kTextMax = 512;
inline constexpr std::uint32_t kConnectMsMax = 60'000;  ///< longest wait for a connection

enum class Kind : std::uint16_t {
    kHello,
    kShare,  ///< with a file descriptor
    kUnshare,
    kRegister,
    kDeregister,
    kCreateRing,
    kDestroyRing,
    kCreateQueuePair,
    kDestroyQueuePair,
    kReset,
    kConnect,
    kDisconnect,
    kState,
    kCounters,
};

/// All addresses are those of the client's process.
struct Request {
    std::uint32_t magic = kMagic;
    std::uint16_t version = kVersion;
    Kind kind = Kind::kHello;
    std::uint64_t address = 0, bytes = 0, offset = 0;  ///< kShare, kUnshare, kRegister; rings: `address`
    std::uint64_t record = 0;                          ///< consumer record, doorbell record
    std::uint64_t receive_ring = 0, bell = 0;
    std::uint64_t tickets = 0;  ///< kCreateRing: for a ring that several nodes fill; 0: one node fills it
    std::uint32_t entries = 0, receive_entries = 0;
    std::uint32_t access = 0;
    /// Number of a ring or queue pair, or an lkey; for calls that create, the number to use (0: any).
    std::uint32_t number = 0;
    std::uint32_t send_cq = 0, receive_cq = 0, rkey = 0;
    std::uint32_t timeout_ms = 0;
    std::uint32_t use = 0;
    std::uint8_t collapsed = 0, scatter_to_cqe = 0;
    std::uint16_t private_bytes = 0;
    std::array<char, 64> service{};  ///< ends with 0
    std::array<std::byte, kPrivateBytesMax> private_data{};
};

struct Answer {
    std::uint32_t magic = kMagic;
    std::uint16_t version = kVersion;
    std::uint16_t private_bytes = 0;
    std::int32_t failure = -1;  ///< an Errc; -1: none
    std::uint32_t value = 0, second = 0;
    std::uint32_t reserved = 0;
    NicCounters counters{};
    std::array<char, kTextMax> text{};  ///< of the failure; ends with 0
    std::array<std::byte, kPrivateBytesMax> private_data{};
};

/// The answer that reports an error.
[[nodiscard]] inline Answer refusal(const Error& why) {
    Answer answer;
    answer.failure = static_cast<std::int32_t>(why.code);
    std::copy_n(why.message.begin(), std::min(why.message.size(), kTextMax - 1), answer.text.begin());
    return answer;
}

static_assert(std::is_trivially_copyable_v<Request> && std::is_trivially_copyable_v<Answer>,
              "requests and answers are sent as raw bytes");
static_assert(std::has_unique_object_representations_v<Request> &&
                  std::has_unique_object_representations_v<Answer>,
              "padding would tell the other process what was on the stack");

}  // namespace gnstor::rdma::shm
