// channel_options.hpp: what the host chooses when it creates a channel. Channel::create checks the values.
#pragma once

#include <gnstor/gnor/detail/resources/channel_state.hpp>
#include <gnstor/simt/launch.hpp>

#include "gnor/pool_plan.hpp"
#include "rdma/nic/nic.hpp"

#include <array>
#include <cstdint>

namespace gnstor::gnor {

struct ChannelOptions {
    std::uint32_t ssds = 1;                 ///< slots of the array: one queue pair each; 1 .. 64
    std::uint64_t absent = 0;               ///< bit per slot without an SSD: its queue pair counts as broken
    std::uint32_t depth = 32;               ///< commands in flight per queue pair; a power of two, 2 .. 1024
    std::uint64_t pool_bytes = 8ull << 20;  ///< registered pool; a multiple of 256 KiB
    std::uint64_t pool_bytes_max = 0;       ///< the pool may grow to this; 0: no growth (PoolOptions)
    std::array<std::uint32_t, kMaxPoolLevels> pool_levels = PoolOptions{}.levels;
    simt::LanesKind lanes = simt::LanesKind::kCpu;
    Sharing sharing = Sharing::kGrid;           ///< which lanes share it; views of other modes are refused
    rdma::RingUse use = rdma::RingUse::kLanes;  ///< channels of one use are spread over the NIC's pollers
    /// Debug checks: commands on pool memory that is not allocated are refused (kNotAllocated), and memory
    /// that a command uses cannot be freed (kBufferInUse). Costs a search and two atomics per command.
    bool check_buffers = false;
    bool scatter_to_cqe = true;  ///< responses land in the completion: one memory access less
    bool huge_pages = false;     ///< for the pool
};

}  // namespace gnstor::gnor
