#include "daemon/decisions/ssd_port.hpp"

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
        // Answered, so nothing was changed: no grant begins (Manager::set_map).
        case nvme::Status::kBusy:
        case nvme::Status::kNotGranted:
        case nvme::Status::kInternalError:
            code = Errc::kBusy;
            break;
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
    const char* advice = "";
    if (status == nvme::Status::kInvalidField || status == nvme::Status::kInvalidOpcode) {
        // Older firmware treats fields that have a meaning now as reserved.
        advice = "; is the program that serves it older than gnstord?";
    } else if (status == nvme::Status::kCommandSequenceError) {
        advice =
            "; the SSD refuses a term so far above the newest that it has seen: restart gnstord, whose log "
            "says which term to give to 'gnstor ssd reset-term' on the SSD's store";
    } else if (status == nvme::Status::kNotGranted) {
        advice =
            "; the SSD restarted, or another gnstord asked for its grant, after this gnstord did: gnstord "
            "asks again";
    }
    return error(code, "SSD {} answered {} with \"{}\"{}", ssd, command, nvme::status_name(status), advice);
}

}  // namespace gnstor::daemon
