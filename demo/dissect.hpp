// dissect.hpp: one read taken apart: the bytes that lanes and NIC exchanged for it, field by field. Host;
// pure.
#pragma once

#include <gnstor/nvme/command.hpp>
#include <gnstor/rdma/mlx5.hpp>

#include <cstdint>
#include <string>

namespace gnstor::demo {

/// The bytes of one read as they lie in queue memory after it, and what a lane's clock said on the way.
struct ReadTrace {
    nvme::Command capsule;
    rdma::mlx5::SendEntry entry;
    std::uint64_t bell;             ///< the 64-bit value stored to the doorbell register
    std::uint32_t doorbell_record;  ///< send counter, big endian, as in memory
    rdma::mlx5::Cqe64 cqe;          ///< receive completion
    nvme::Completion response;
    std::uint64_t built_ns, rung_ns, completed_ns, data_read_ns;  ///< since the call began
    std::uint32_t slot;                                           ///< of the SSD that served it
};

/// Annotated hex, one field a line.
std::string dissect(const ReadTrace& trace);

}  // namespace gnstor::demo
