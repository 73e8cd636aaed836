// status.hpp: completion status of a command. CPU and GPU lanes, host and drive.
//
// A Status is an NVMe status (type and code, NVMe Base 2.0, 4.6.1 "Status Field Definition"), or a local one,
// set on this side without a drive's answer. Values below 0x800 are (type << 8) | code; local ones lie above.
#pragma once

#include <gnstor/base/target.hpp>

#include <cstdint>

namespace gnstor::nvme {

enum class [[nodiscard]] Status : std::uint32_t{
    // Type 0h, generic (Base 2.0, figure 94).
    kSuccess = 0x000,
    kInvalidOpcode = 0x001,
    kInvalidField = 0x002,
    kCommandIdConflict = 0x003,
    kDataTransferError = 0x004,
    kInternalError = 0x006,
    kAborted = 0x007,
    kInvalidNamespace = 0x00B,
    kCommandSequenceError = 0x00C,
    kInvalidSglCount = 0x00E,
    kDataSglLengthInvalid = 0x00F,
    kSglTypeInvalid = 0x011,
    kInvalidControllerMemoryUse = 0x012,
    kSglOffsetInvalid = 0x016,
    kHostIdInconsistent = 0x018,
    kKeepAliveExpired = 0x019,
    kKeepAliveInvalid = 0x01A,
    kNamespaceWriteProtected = 0x020,
    kTransientTransportError = 0x022,
    kLbaOutOfRange = 0x080,
    kCapacityExceeded = 0x081,
    // Type 1h, command specific.
    kInvalidQueueId = 0x101,
    kInvalidQueueSize = 0x102,
    kAsyncEventLimitExceeded = 0x105,
    kInvalidLogPage = 0x109,
    kFeatureNotSaveable = 0x10D,
    kFeatureNotChangeable = 0x10E,
    kConnectIncompatibleFormat = 0x180,  // NVMe over Fabrics 1.1, figure 21
    kConnectControllerBusy = 0x181,
    kConnectInvalidParameters = 0x182,
    kConnectRestartDiscovery = 0x183,
    kConnectInvalidHost = 0x184,
    kAuthenticationRequired = 0x191,
    // Type 2h, media and data integrity.
    kWriteFault = 0x280,
    kUnrecoveredReadError = 0x281,
    kAccessDenied = 0x286,
    // Type 3h, path.
    kHostPathError = 0x370,
    // Type 7h, vendor: GNStor (docs/design.md, "The command").
    kStaleMap = 0x7C0,      ///< the drive's map version is in DW0; fetch it and retry with the same sequence
    kNotGranted = 0x7C1,    ///< the drive holds no grant now; retry
    kStaleEpoch = 0x7C2,    ///< a newer opening for writing exists; do not retry
    kWrongSsd = 0x7C3,      ///< this chunk does not live on this drive; do not retry
    kBusy = 0x7C4,          ///< a bounded table is full; retry
    kStaleTerm = 0x7C5,     ///< an admin command of a superseded daemon; do not retry
    kVolumeExists = 0x7C6,  ///< VOLUME ADD of a VID or a name that exists already
    kNoSuchVolume = 0x7C7,  ///< admin commands on an unknown VID (data commands answer Access Denied)
    /// A read of a block whose newest version this drive cannot tell from a torn write: read another replica;
    /// if all replicas answer kDoubtful, ask for the older version (IoFields::accept_older, vendor.hpp).
    /// Synchronous reads try all replicas; requests that are sent to one replica only end with this status.
    /// docs/array.md, rule 18.
    kDoubtful = 0x7C8,
    // Local: never on the wire.
    kTimedOut = 0x10001,        ///< the deadline passed after sending: outcome unknown, buffer still in use
    kBadArgument = 0x10002,     ///< zero blocks, misaligned buffer, sector range, ...
    kNotRegistered = 0x10003,   ///< the buffer does not lie in a registered region
    kNoBuffer = 0x10004,        ///< the pool is exhausted
    kQueueError = 0x10005,      ///< the queue pair is in error; reclaim() on the host makes it usable again
    kNotWritable = 0x10006,     ///< the volume was opened for reading
    kTooManyPending = 0x10007,  ///< a call that does not wait found no slot or credit: nothing was sent
    kStaleToken = 0x10008,      ///< the token was waited for or dropped before
    kBufferInUse = 0x10009,     ///< an abandoned command may still access the buffer
    kWrongSharing = 0x1000A,    ///< the channel was opened for another sharing mode than the view's
    kNotAllocated = 0x1000B,    ///< the buffer lies in a pool but is not allocated (debug check)
    kWrongLanes = 0x1000D,      ///< the channel is for lanes of another kind (CPU, GPU), or of another GPU
    kNotSent = 0x1000C,         ///< the deadline passed before anything was sent: the buffer is free
    /// The read succeeded, but some blocks' newest version is doubtful on every replica: for these the buffer
    /// holds the newest of the older versions. docs/array.md, rule 18.
    kOlderVersion = 0x1000E,
};

GN_HD
constexpr bool ok(Status s) {
    return s == Status::kSuccess;
}
GN_HD
constexpr bool is_local(Status s) {
    return static_cast<std::uint32_t>(s) >= 0x10000u;
}
/// Whether the same command may succeed when sent again (kStaleMap: after fetching the map).
GN_HD
constexpr bool may_retry(Status s) {
    return s == Status::kStaleMap || s == Status::kNotGranted || s == Status::kBusy;
}

/// The 15-bit status field above the phase bit, with Do Not Retry set unless may_retry().
GN_HD
constexpr std::uint16_t to_field(Status s) {
    const auto v = static_cast<std::uint32_t>(s) & 0x7FFu;
    const bool dnr = s != Status::kSuccess && !may_retry(s);
    return static_cast<std::uint16_t>(v | (dnr ? 0x4000u : 0u));
}
/// The status in a 15-bit status field; More, retry delay and Do Not Retry are ignored.
GN_HD
constexpr Status from_field(std::uint16_t field) {
    return static_cast<Status>(field & 0x7FFu);
}

/// A short name for display ("Access Denied"); host only.
const char* status_name(Status s) noexcept;

}  // namespace gnstor::nvme
