// mailbox.hpp: how a CPU initiator and the lanes that use the data tell each other: "this buffer holds what
// was read", "make here what is to be written". Pinned memory; CPU and GPU lanes.
//
// One CPU thread posts, one warp takes, in order. The thread fills an entry, then raises `posted` with a
// release; the warp does what the entry asks for, then raises `taken` with a release. At most kEntries lie
// between the two.
//
// Latency is taken here, by the warp's own clock, so that it means for a CPU initiator what it means for
// lanes that initiate: from the moment when the consumer is ready for the next request of a flight (it gave
// the buffer of the last one back, or made what is to be written) until it sees that the request is done,
// with a read's data where it reads them.
#pragma once

#include <gnstor/simt/atomic.hpp>

#include "bench/initiators/load.hpp"

#include <type_traits>

namespace gnstor::bench {

enum class Errand : std::uint32_t {
    kLook,   ///< data arrived; nothing is to be compared
    kCheck,  ///< data arrived; compare every word
    kFill0,  ///< make contents of generation 0
    kFill1,  ///< of generation 1
    kDone,   ///< a write is done; nothing is asked for
};

struct MailEntry {
    std::uint64_t offset;  ///< in the volume
    std::uint64_t buffer;  ///< as lanes see it
    std::uint32_t bytes;
    Errand errand;
    std::uint16_t flight;  ///< which of the stream's requests in flight
    std::uint16_t reserved;
    std::uint32_t finishes;  ///< 1: with this entry a request of the flight is done
};
static_assert(sizeof(MailEntry) == 32, "two accesses of 16 bytes");

struct alignas(64) Mailbox {
    static constexpr std::uint32_t kEntries = 256;  // two for each flight of a stream
    std::uint64_t posted;                           // atomic: by the CPU thread
    std::uint32_t stop;                             // atomic: 1: nothing more will be posted
    alignas(64) std::uint64_t taken;                // atomic: by the warp
    alignas(64) MailEntry entries[kEntries];
};
static_assert(std::is_trivially_copyable_v<Mailbox>, "it lies in zeroed pinned memory");

/// What the warp of one mailbox noted. Lane memory.
struct MailResult {
    std::uint64_t checked, wrong;
    std::uint64_t first_wrong_offset;
    std::uint64_t cpu_ns;    ///< of the thread; CPU lanes only
    std::uint64_t finished;  ///< requests that the warp saw done and knows the begin of
};
inline constexpr std::uint32_t kMailFlights = 128;  ///< of a stream, at most

}  // namespace gnstor::bench
