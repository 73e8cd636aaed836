#include <gnstor/nvme/status.hpp>

namespace gnstor::nvme {

const char* status_name(Status s) noexcept {
    switch (s) {
        case Status::kSuccess:
            return "Success";
        case Status::kInvalidOpcode:
            return "Invalid Command Opcode";
        case Status::kInvalidField:
            return "Invalid Field in Command";
        case Status::kCommandIdConflict:
            return "Command ID Conflict";
        case Status::kDataTransferError:
            return "Data Transfer Error";
        case Status::kInternalError:
            return "Internal Error";
        case Status::kAborted:
            return "Command Abort Requested";
        case Status::kInvalidNamespace:
            return "Invalid Namespace or Format";
        case Status::kCommandSequenceError:
            return "Command Sequence Error";
        case Status::kInvalidSglCount:
            return "Invalid Number of SGL Descriptors";
        case Status::kDataSglLengthInvalid:
            return "Data SGL Length Invalid";
        case Status::kSglTypeInvalid:
            return "SGL Descriptor Type Invalid";
        case Status::kInvalidControllerMemoryUse:
            return "Invalid Use of Controller Memory Buffer";
        case Status::kSglOffsetInvalid:
            return "SGL Offset Invalid";
        case Status::kHostIdInconsistent:
            return "Host Identifier Inconsistent Format";
        case Status::kKeepAliveExpired:
            return "Keep Alive Timer Expired";
        case Status::kKeepAliveInvalid:
            return "Keep Alive Timeout Invalid";
        case Status::kNamespaceWriteProtected:
            return "Namespace is Write Protected";
        case Status::kTransientTransportError:
            return "Transient Transport Error";
        case Status::kLbaOutOfRange:
            return "LBA Out of Range";
        case Status::kCapacityExceeded:
            return "Capacity Exceeded";
        case Status::kInvalidQueueId:
            return "Invalid Queue Identifier";
        case Status::kInvalidQueueSize:
            return "Invalid Queue Size";
        case Status::kAsyncEventLimitExceeded:
            return "Asynchronous Event Request Limit Exceeded";
        case Status::kInvalidLogPage:
            return "Invalid Log Page";
        case Status::kFeatureNotSaveable:
            return "Feature Identifier Not Saveable";
        case Status::kFeatureNotChangeable:
            return "Feature Not Changeable";
        case Status::kConnectIncompatibleFormat:
            return "Connect Incompatible Format";
        case Status::kConnectControllerBusy:
            return "Connect Controller Busy";
        case Status::kConnectInvalidParameters:
            return "Connect Invalid Parameters";
        case Status::kConnectRestartDiscovery:
            return "Connect Restart Discovery";
        case Status::kConnectInvalidHost:
            return "Connect Invalid Host";
        case Status::kAuthenticationRequired:
            return "Authentication Required";
        case Status::kWriteFault:
            return "Write Fault";
        case Status::kUnrecoveredReadError:
            return "Unrecovered Read Error";
        case Status::kAccessDenied:
            return "Access Denied";
        case Status::kHostPathError:
            return "Host Pathing Error";
        case Status::kStaleMap:
            return "GNStor: Stale Map";
        case Status::kNotGranted:
            return "GNStor: Not Granted";
        case Status::kStaleEpoch:
            return "GNStor: Stale Epoch";
        case Status::kWrongSsd:
            return "GNStor: Wrong SSD for this Chunk";
        case Status::kBusy:
            return "GNStor: Busy";
        case Status::kStaleTerm:
            return "GNStor: Stale Term";
        case Status::kVolumeExists:
            return "GNStor: Volume Exists";
        case Status::kNoSuchVolume:
            return "GNStor: No Such Volume";
        case Status::kDoubtful:
            return "GNStor: Newest Version Doubtful";
        case Status::kOlderVersion:
            return "older version: the newest one is doubtful on every replica";
        case Status::kTimedOut:
            return "timed out";
        case Status::kBadArgument:
            return "bad argument";
        case Status::kNotRegistered:
            return "buffer not registered";
        case Status::kNoBuffer:
            return "no pool buffer";
        case Status::kQueueError:
            return "queue pair in error";
        case Status::kNotWritable:
            return "volume not open for writing";
        case Status::kTooManyPending:
            return "too many pending commands";
        case Status::kStaleToken:
            return "stale token";
        case Status::kNotAllocated:
            return "buffer not allocated";
        case Status::kWrongSharing:
            return "channel opened for other lanes";
        case Status::kBufferInUse:
            return "Buffer In Use";
        case Status::kWrongLanes:
            return "channel of other lanes or another GPU";
        case Status::kNotSent:
            return "not sent before the deadline";
    }
    return "unknown status";
}

}  // namespace gnstor::nvme
