// shares.cpp: see shares.hpp.
#include "rdma/wire/shm/shares.hpp"

#include <unistd.h>

namespace gnstor::rdma::shm {
namespace {

/// Defaults from the machine's memory: the node may be charged for pages that it touches first in memory
/// of clients.
ShmLimit of_this_machine(ShmLimit bytes) {
    if (bytes.total == 0) {
        const auto pages = static_cast<std::uint64_t>(std::max(::sysconf(_SC_PHYS_PAGES), 1L));
        bytes.total = pages / 4 * 3 * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    }
    if (bytes.most == 0) bytes.most = bytes.total / 2;
    return bytes;
}

}  // namespace

Shares::Shares(const ShmLimits& limits, std::uint32_t clients)
    : queue_pairs("queue pairs", limits.queue_pairs, clients),
      completion_queues("completion queues", limits.completion_queues, clients),
      send_entries("send entries", limits.send_entries, clients),
      blocks("blocks of shared memory", limits.blocks, clients),
      bytes("bytes of shared memory", of_this_machine(limits.bytes), clients) {}

Result<void> Share::take(std::uint64_t has, std::uint64_t more) {
    if (more > most_ - has)
        return error(
            Errc::kNoSpace,
            "this client has {} {}; {} more would exceed the {} that one client may have at this node", has,
            name_, more, most_);
    const std::uint64_t wanted = beyond(has + more) - beyond(has);
    std::uint64_t taken = beyond_.load(std::memory_order_relaxed);
    do {
        if (wanted > beyond_max_ - taken)
            return error(Errc::kNoSpace,
                         "this client has {} {}; this node has no {} more, because other clients use them. "
                         "Each client is guaranteed {}: free some, or end other clients",
                         has, name_, more, assured_);
    } while (!beyond_.compare_exchange_weak(taken, taken + wanted, std::memory_order_relaxed));
    return {};
}

}  // namespace gnstor::rdma::shm
