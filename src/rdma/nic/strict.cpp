// strict.cpp: strict mode: finds at once what a real NIC would report late or never, and makes timing
// hostile.
//
// The engine remembers entry and payload when it reads them and compares them again at random moments
// until the send completion: so it catches a poster that changes either too early. It delays completions
// for a random number of rounds, so that they coalesce, and ignores bells now and then.
#include "rdma/nic/engine.hpp"

#include <gnstor/base/crc32c.hpp>
#include <gnstor/base/log.hpp>
#include <gnstor/simt/atomic.hpp>

#include <algorithm>
#include <cstring>
#include <optional>

namespace gnstor::rdma {

namespace {

constexpr std::uint32_t kRememberedBytes = 8192;  // of each segment

/// CRC of the local payload of a SEND or WRITE, zero for other opcodes. For a SEND, of the first segment
/// (the capsule) alone: data that travels with it belongs to its owner again at the response, which may
/// come before the send completion (docs/design.md, "A read, from end to end"). Pins the memory meanwhile;
/// nullopt where the region is being deregistered.
std::optional<std::uint32_t> payload_crc(QueuePair& qp, const mlx5::SendEntry& entry) {
    const std::uint8_t opcode = mlx5::control_opcode(entry.control);
    if (opcode != mlx5::kSend && opcode != mlx5::kSendInvalidate && opcode != mlx5::kRdmaWrite) return 0;
    const bool write = opcode == mlx5::kRdmaWrite;
    const std::uint32_t segments = write ? mlx5::control_segments(entry.control) - 1 : 1;
    std::uint32_t crc = 0;
    for (std::uint32_t i = write ? 1 : 0; i < segments; ++i) {
        const mlx5::DataSegment& data = entry.segment[i].data;
        const std::uint32_t bytes = std::min(be32(data.byte_count), kRememberedBytes);
        const MemoryTable::Pin pin = qp.nic->memory.pin(be32(data.lkey), be64(data.address), bytes, 0);
        if (pin.fault != MemoryFault::kNone) return std::nullopt;
        crc = crc32c(pin.data, bytes, crc);
        pin.region->unpin();
    }
    return crc;
}

}  // namespace

void NicEngine::strict_violation(QueuePair& qp, const char* what, std::uint64_t index) {
    count(qp.nic->tally.mine().strict_violations);
    log_error("rdma: strict mode: {}: queue pair {:#x}: {} (entry {}, seed {})", qp.nic->address, qp.qpn,
              what, index, qp.nic->options.seed);
}

/// The bell must name an entry of this queue pair that the record covers.
void NicEngine::strict_check_bell(QueuePair& qp, std::uint64_t bell) {
    const std::uint32_t behind =
        (static_cast<std::uint32_t>(qp.posted) - 1 - mlx5::bell_index(bell)) & mlx5::kIndexMask;
    if (mlx5::bell_qpn(bell) == qp.qpn && behind < qp.config.send_entries) return;
    strict_violation(qp, "the doorbell was rung for an entry that the doorbell record does not cover",
                     mlx5::bell_index(bell));
    fail(qp);
}

void NicEngine::strict_remember(QueuePair& qp, InFlight& flight) {
    flight.payload_crc = payload_crc(qp, flight.entry).value_or(0);
    flight.delay = static_cast<std::uint32_t>(qp.dice.below(4));
}

bool NicEngine::strict_unchanged(QueuePair& qp, std::uint64_t index) {
    const InFlight& flight = qp.flight(index);
    const mlx5::SendEntry now = qp.config.send_ring[index & (qp.config.send_entries - 1)];
    const char* fault = nullptr;
    if (std::memcmp(&now, &flight.entry, sizeof now) != 0)
        fault = "a send entry was changed before its completion";
    else if (payload_crc(qp, flight.entry).value_or(flight.payload_crc) != flight.payload_crc)
        fault = "the payload of a send entry was changed before its completion";
    if (fault == nullptr) return true;
    strict_violation(qp, fault, index);
    return false;
}

/// Checks one random entry that is executed and not retired.
void NicEngine::strict_reread(QueuePair& qp) {
    const std::uint64_t open = qp.executed - qp.retired;
    if (open == 0 || qp.dice.below(4) != 0) return;
    const std::uint64_t index = qp.retired + qp.dice.below(open);
    InFlight& flight = qp.flight(index);
    if (flight.syndrome != mlx5::kSyndromeNone || strict_unchanged(qp, index)) return;
    flight.syndrome = mlx5::kLocalQpOperationError;
    fail(qp);
}

}  // namespace gnstor::rdma
