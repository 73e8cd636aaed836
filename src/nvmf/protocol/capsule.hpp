// capsule.hpp: parses a command capsule into the data transfer that it asks for, or the status that refuses
// it. Pure.
//
// NVMe Base 2.0, 3.3.3.1 (entries), 4.1.2 (SGLs over fabrics); NVMe RDMA Transport 1.0, 3 (capsules). A
// capsule is 64 bytes of command, then at most 4 KiB of data.
// Invariants:
//   * the 64 bytes are copied once and every decision uses the copy, because the sender may overwrite its
//     memory meanwhile;
//   * direction and length follow from the opcode, never from the SGL alone: a capsule whose SGL does not fit
//     its opcode is refused before any byte moves;
//   * nothing here allocates or blocks; every failure is a status. Any bytes are acceptable input.
#pragma once

#include <gnstor/nvme/command.hpp>

#include "rdma/nic/nic.hpp"
#include "ssd/queues/nvme_device.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace gnstor::nvmf {

inline constexpr std::uint32_t kCommandBytes = 64;
inline constexpr std::uint32_t kInCapsuleBytes = 4096;  ///< data a capsule may carry
inline constexpr std::uint32_t kCapsuleBytesMax = kCommandBytes + kInCapsuleBytes;
inline constexpr std::uint32_t kTransferBytesMax = 1u << 20;  ///< MDTS: no command moves more

enum class QueueKind : std::uint8_t { kAdmin, kIo };

/// The bytes of one message, which may lie in several pieces.
class MessageBytes {
  public:
    explicit MessageBytes(std::span<const rdma::Segment> segments) : segments_(segments) {
        for (const rdma::Segment& s : segments) bytes_ += s.bytes;
    }
    [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
    /// Copies `bytes` from `offset`; the range must lie within the message.
    void copy(std::uint64_t offset, std::uint32_t bytes, std::byte* to) const;
    /// The range if it lies in one piece, else null.
    [[nodiscard]] const std::byte* contiguous(std::uint64_t offset, std::uint32_t bytes) const;

  private:
    std::span<const rdma::Segment> segments_;
    std::uint64_t bytes_ = 0;
};

enum class Direction : std::uint8_t { kNone, kToDrive, kToHost };

/// What data an opcode moves.
struct DataNeed {
    nvme::Status status = nvme::Status::kSuccess;  ///< anything else: refuse the command with it
    Direction direction = Direction::kNone;
    std::uint32_t bytes = 0;
    bool any_length = false;  ///< the command does not say how much: the SGL does, up to kTransferBytesMax
    bool at_least = false;    ///< the SGL may name more; no more than `bytes` moves
};
DataNeed data_need(QueueKind kind, const nvme::Command& command, ssd::Dialect dialect = ssd::Dialect::kArray);

enum class Payload : std::uint8_t { kNone, kInCapsule, kKeyed };

struct Capsule {
    nvme::Command command;  ///< the only copy of the 64 bytes
    Payload payload = Payload::kNone;
    Direction direction = Direction::kNone;
    std::uint32_t bytes = 0;           ///< of data
    std::uint32_t offset = 0;          ///< in-capsule: where the data begins in the message
    std::uint64_t address = 0;         ///< keyed: in the peer's memory
    std::uint32_t key = 0;             ///< keyed
    std::uint32_t invalidate_key = 0;  ///< to be invalidated with the response; 0: none
};

[[nodiscard]] inline bool is_fabrics(const nvme::Command& command) {
    return command.opcode == static_cast<std::uint8_t>(nvme::AdminOpcode::kFabrics);
}

enum class Verdict : std::uint8_t {
    kGood,
    kRefused,  ///< answer with `status`
    kBroken,   ///< no complete command: fail the connection
};

struct ParsedCapsule {
    Verdict verdict = Verdict::kBroken;
    nvme::Status status = nvme::Status::kSuccess;
    bool malformed = false;  ///< the capsule breaks the rules of the transport
    Capsule capsule;         ///< `command` is filled unless kBroken
};

/// Parses one message of a queue of `kind` to a device of `dialect`.
ParsedCapsule parse_capsule(const MessageBytes& message, QueueKind kind,
                            ssd::Dialect dialect = ssd::Dialect::kArray);

}  // namespace gnstor::nvmf
