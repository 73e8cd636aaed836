#include "daemon/ssd_port.hpp"

namespace gnstor::daemon {

Error ssd_error(nvme::Status status, std::string_view command, std::string_view ssd) {
    Errc code = Errc::kInvalidArgument;
    switch (status) {
        case nvme::Status::kStaleTerm:
            code = Errc::kState;
            break;
        case nvme::Status::kVolumeExists:
            code = Errc::kExists;
            break;
        case nvme::Status::kNoSuchVolume:
            code = Errc::kNotFound;
            break;
        case nvme::Status::kCapacityExceeded:
            code = Errc::kNoSpace;
            break;
        case nvme::Status::kStaleEpoch:
            code = Errc::kUnsupported;
            break;
        case nvme::Status::kAccessDenied:
            code = Errc::kPermission;
            break;
        case nvme::Status::kTimedOut:
            code = Errc::kTimedOut;
            break;
        case nvme::Status::kBusy:
        case nvme::Status::kInternalError:
        case nvme::Status::kAborted:
        case nvme::Status::kQueueError:
        case nvme::Status::kHostPathError:
        case nvme::Status::kKeepAliveExpired:
        case nvme::Status::kTransientTransportError:
            code = Errc::kIo;
            break;
        default:
            break;
    }
    // Fields that mean something since are reserved to an older firmware.
    const char* const advice =
        status == nvme::Status::kInvalidField ? "; is the program that serves it older than gnstord?" : "";
    return error(code, "SSD {} answered {} with \"{}\"{}", ssd, command, nvme::status_name(status), advice);
}

}  // namespace gnstor::daemon
