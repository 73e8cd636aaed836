// data_pointer.hpp: the data pointer of a command in a drive's own queue: one unkeyed SGL data block at a
// host virtual address.
//
// NVMe Base 2.0, 3.3.3.1 (PSDT, fused bits) and 4.1.2 (SGL); a length must equal what the command transfers,
// because the drive reports no support for longer SGLs. Pure functions; addresses are trusted (the target
// offload resolved them), everything else is validated.
#pragma once

#include <gnstor/nvme/command.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace gnstor::ssd {

enum class Length : std::uint8_t { kExact, kAtLeast };

/// PSDT must select SGL, and the command must not be part of a fused pair.
nvme::Status check_flags(const nvme::Command& command);

/// The memory that the command names, if its descriptor is one data block of `bytes` bytes (kAtLeast: of
/// `bytes` or more, up to MDTS).
nvme::Status data_span(const nvme::Command& command, std::uint32_t bytes, Length length,
                       std::span<std::byte>& data);

/// All checks of an I/O command that need no knowledge of volumes: flags, namespace, opcode, size, data
/// pointer. Success: `data` is the buffer of the read or write, or the range list; empty for commands without
/// data.
nvme::Status check_io(const nvme::Command& command, std::span<std::byte>& data);

/// Prefetches the first cache lines of a write payload that is copied soon; the copy itself prefetches the
/// rest.
inline void prefetch_payload(const void* data) {
    constexpr std::size_t kLines = 8;
    for (std::size_t line = 0; line < kLines; ++line)
        __builtin_prefetch(static_cast<const std::byte*>(data) + line * 64);
}

}  // namespace gnstor::ssd
