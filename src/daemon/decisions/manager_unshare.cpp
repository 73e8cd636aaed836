// manager_unshare.cpp: ends the sharing of a volume, as share_volume() (manager_volumes.cpp) begins it. Once the
// change is in force, every SSD that serves refuses the reader's commands.
#include "daemon/decisions/manager.hpp"

#include <algorithm>

namespace gnstor::daemon {
namespace {

/// Takes `reader` (0: all clients) out of the record; false: it was not shared so.
bool remove_reader(nvme::VolumeRecord& record, nvme::ClientId reader) {
    if (reader == 0) {
        const bool shared = (record.flags & nvme::kVolumeWorldReadable) != 0;
        record.flags &= ~nvme::kVolumeWorldReadable;
        return shared;
    }
    nvme::ClientId* const end = record.readers + record.reader_count;
    nvme::ClientId* const kept = std::remove(record.readers, end, reader);
    std::fill(kept, end, nvme::ClientId{0});  // records of equal content have equal bytes
    record.reader_count = static_cast<decltype(record.reader_count)>(kept - record.readers);
    return kept != end;
}

}  // namespace

Result<void> Manager::check_unshare(const nvme::VolumeRecord& record, nvme::ClientId reader) const {
    const std::string name = record.name;
    if ((record.flags & nvme::kVolumeDeleting) != 0)
        return error(Errc::kNotFound, "volume '{}' is being deleted", name);
    if ((record.flags & nvme::kVolumeAnyWriter) != 0)
        return error(Errc::kState,
                     "any client may write volume '{}', and so read it; copy it to a volume without "
                     "--any-writer to keep others out",
                     name);
    if (reader == record.owner)
        return error(Errc::kInvalidArgument, "{} owns volume '{}', and may always read it",
                     client_name(reader), name);
    if (reader != 0 && !records_.clients.contains(reader))
        return error(Errc::kNotFound, "{} is not registered, so volume '{}' is not shared with it",
                     client_name(reader), name);
    if (reader != 0 && (record.flags & nvme::kVolumeWorldReadable) != 0)
        return error(Errc::kState,
                     "volume '{0}' is shared with all clients, so {1} would still read it; end that first "
                     "('gnstor volume unshare {0}'), which keeps the clients that it is shared with by name",
                     name, client_name(reader));
    return {};
}

Result<void> Manager::unshare_volume(nvme::ClientId owner, const std::string& name, nvme::ClientId reader) {
    GN_TRY(sure());
    GN_TRY(check_client(owner));
    GN_ASSIGN(nvme::VolumeRecord* const found, find(name));
    nvme::VolumeRecord record = *found;
    if (record.owner != owner)
        return error(Errc::kPermission, "only the owner of volume '{}', {}, may end its sharing", name,
                     client_name(record.owner));
    GN_TRY(check_unshare(record, reader));
    if (remove_reader(record, reader)) return change_volume(record);
    // Asked again, after an error that said that the change is pending.
    if (live_[record.geometry.volume].in_force) return {};
    if (Result<void> active = activate(record.geometry.volume); !active.ok())
        return pending_error(fmt::format("the end of the sharing of volume '{}'", name), active.error());
    return {};
}

}  // namespace gnstor::daemon
