// refusal.hpp: error messages for connections that were not made. Pure; any thread.
#pragma once

#include <gnstor/base/result.hpp>

#include "rdma/roce/cm_messages.hpp"

#include <cstdint>
#include <string>

namespace gnstor::rdma::udp {

/// The error for a REJ. kNotFound: no listener there; kBusy: no room there now; kPermission: all others,
/// with the peer's private data where it is NVMe's or text. `whom`: "10.0.0.1 port 4420 from 10.0.0.2".
[[nodiscard]] Error refusal(const std::string& whom, const roce::CmMessage& reject);
/// The error if the peer sent no message at all.
[[nodiscard]] Error no_answer(const std::string& whom, std::uint16_t udp_port);

}  // namespace gnstor::rdma::udp
