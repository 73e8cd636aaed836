// mutation.hpp: faults that tests plant into the transport, to see that the simulation notices them.
//
// The product is built without GN_ROCE_MUTATION, and then every test of planted() is a constant false.
// tests/rdma/roce builds the same sources once for each fault and demands that the simulated network finds
// it.
#pragma once

#include <cstdint>

#ifndef GN_ROCE_MUTATION
#define GN_ROCE_MUTATION 0
#endif

namespace gnstor::rdma::roce {

enum class Mutation : std::uint8_t {
    kNone = 0,
    kAcknowledgeEarly = 1,         ///< what arrived beyond a gap is acknowledged
    kExecuteOldWrite = 2,          ///< a duplicate RDMA WRITE is executed again
    kSkipIcrc = 3,                 ///< any ICRC is good
    kSkipKeyCheck = 4,             ///< a WRITE needs no more than the right to read
    kForgetRetransmittedRead = 5,  ///< a duplicate RDMA READ is dropped
};

constexpr bool planted(Mutation mutation) noexcept {
    return static_cast<int>(mutation) == GN_ROCE_MUTATION;
}

}  // namespace gnstor::rdma::roce
