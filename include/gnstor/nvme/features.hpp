// features.hpp: Set Features and Get Features: identifiers and the layout of their values. NVMe
// Base 2.0, 5.27. Pure.
#pragma once

#include <cstdint>

namespace gnstor::nvme {

/// Feature identifiers, CDW10 7:0 of Set and Get Features. Base 2.0, figure 317.
enum class Feature : std::uint8_t {
    kArbitration = 0x01,
    kPowerManagement = 0x02,
    kTemperatureThreshold = 0x04,
    kErrorRecovery = 0x05,  ///< specific to the NVM command set
    kVolatileWriteCache = 0x06,
    kNumberOfQueues = 0x07,
    kWriteAtomicity = 0x0A,
    kAsyncEventConfiguration = 0x0B,
    kKeepAliveTimer = 0x0F,
};

/// Which value Get Features returns, CDW10 10:8. Base 2.0, figure 196.
enum class FeatureSelect : std::uint8_t { kCurrent = 0, kDefault = 1, kSaved = 2, kSupported = 3 };
inline constexpr std::uint32_t kFeatureSave = 1u << 31;       ///< CDW10 of Set Features
inline constexpr std::uint32_t kFeatureChangeable = 1u << 2;  ///< answer to FeatureSelect::kSupported

/// Number of Queues, CDW11 and DW0: submission 15:0, completion 31:16, both 0's based. Base 2.0, 5.27.1.5.
struct QueueCount {
    std::uint32_t submission = 1;  ///< 1 .. 65535
    std::uint32_t completion = 1;
    [[nodiscard]] constexpr std::uint32_t encode() const {
        return ((submission - 1) & 0xFFFFu) | (((completion - 1) & 0xFFFFu) << 16);
    }
    static constexpr QueueCount decode(std::uint32_t v) { return {(v & 0xFFFFu) + 1, (v >> 16) + 1}; }
    bool operator==(const QueueCount&) const = default;
};

/// Volatile Write Cache, CDW11 bit 0: enabled. Base 2.0, 5.27.1.4.
inline constexpr std::uint32_t kWriteCacheEnabled = 1u;

/// Asynchronous Event Configuration, CDW11. Base 2.0, 5.27.1.8.
inline constexpr std::uint32_t kAsyncNamespaceAttribute = 1u << 8;

/// Asynchronous event, DW0 of the completion of a request: type 2:0, information 15:8, log page 23:16. Base
/// 2.0, 5.2.
struct AsyncEvent {
    std::uint8_t type = 0;  ///< 0 error, 1 health, 2 notice
    std::uint8_t information = 0;
    std::uint8_t log_page = 0;
    [[nodiscard]] constexpr std::uint32_t encode() const {
        return (type & 7u) | (std::uint32_t{information} << 8) | (std::uint32_t{log_page} << 16);
    }
    bool operator==(const AsyncEvent&) const = default;
};

/// Keep Alive Timer, CDW11: milliseconds; 0 disables. Base 2.0, 5.27.1.12.

}  // namespace gnstor::nvme
