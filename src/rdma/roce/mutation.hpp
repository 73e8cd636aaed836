// mutation.hpp: faults that tests plant into the transport, to check that the simulation detects them.
//
// Product builds do not define GN_ROCE_MUTATIONS: planted() is then a constant false. tests/rdma/roce
// builds the sources that call planted() a second time with it, plants one fault after the other and
// requires that the simulated network detects each.
#pragma once

#include <cstdint>

namespace gnstor::rdma::roce {

enum class Mutation : std::uint8_t {
    kNone = 0,
    kAcknowledgeEarly = 1,         ///< packets beyond a gap are acknowledged
    kExecuteOldWrite = 2,          ///< a duplicate RDMA WRITE is executed again
    kSkipIcrc = 3,                 ///< every ICRC passes
    kSkipKeyCheck = 4,             ///< a WRITE needs only the right to read
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
