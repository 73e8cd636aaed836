// mutation.hpp: faults that tests plant into the transport, to see that the simulation notices them.
//
// The product is built without GN_ROCE_MUTATIONS, and then planted() is a constant false. tests/rdma/roce
// builds the sources that ask once more with it, chooses one fault after the other and demands that the
// simulated network finds it.
#pragma once

#include <cstdint>

namespace gnstor::rdma::roce {

enum class Mutation : std::uint8_t {
    kNone = 0,
    kAcknowledgeEarly = 1,         ///< what arrived beyond a gap is acknowledged
    kExecuteOldWrite = 2,          ///< a duplicate RDMA WRITE is executed again
    kSkipIcrc = 3,                 ///< any ICRC is good
    kSkipKeyCheck = 4,             ///< a WRITE needs no more than the right to read
    kForgetRetransmittedRead = 5,  ///< a duplicate RDMA READ is dropped
};

#ifdef GN_ROCE_MUTATIONS
/// Chosen by a test while no simulation runs.
inline Mutation planted_mutation = Mutation::kNone;
inline bool planted(Mutation mutation) noexcept {
    return mutation == planted_mutation;
}
#else
constexpr bool planted(Mutation) noexcept {
    return false;
}
#endif

}  // namespace gnstor::rdma::roce
