#include "ssd/flash/file/view_store.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

namespace gnstor::ssd {

namespace {

/// Extends the refusal of a recoverable store: the recovery that it advises needs a writable file system.
Error refuse(const Error& why) {
    return error(why.code, "{}; its file system is read-only, and a recovery needs it writable", why.message);
}

}  // namespace

Result<std::unique_ptr<Store>> ViewStore::open(const std::filesystem::path& path, const Uuid& host_boot) {
    GN_ASSIGN(std::unique_ptr<StoreView> view, StoreView::open(path));
    GN_ASSIGN(const BootRecord boot, view->boot());
    if (!trusted(boot, host_boot))
        return error(Errc::kState,
                     "the store {} may lack acknowledged writes, and its contents cannot be set aside on a "
                     "read-only file system; mount the file system writable",
                     path.string());
    // If no recovery is possible, the refusal stays unchanged.
    GN_TRY(view->check_metadata(true));
    if (const Result<void> sound = view->check_metadata(false); !sound.ok()) return refuse(sound.error());
    if (const auto loss = view->journal_loss(); loss) return refuse(refuse_loss(path, *loss));
    return std::unique_ptr<Store>(new ViewStore(std::move(view), boot));
}

StoreIdentity ViewStore::identity() const {
    const Superblock& s = view_->superblock();
    StoreIdentity id{.serial = serial_of(s),
                     .capacity_bytes = s.capacity_bytes,
                     .over_provisioning_percent = s.over_provisioning_percent,
                     .service_units = s.service_units};
    std::copy(std::begin(s.drive_uuid), std::end(s.drive_uuid), id.drive_uuid.begin());
    std::copy(std::begin(boot_.incarnation), std::end(boot_.incarnation), id.incarnation.begin());
    id.same_boot = was_only_killed(boot_, host_boot_id());
    return id;
}

std::string ViewStore::describe() const {
    return fmt::format("read-only file {}", view_->path().string());
}

bool on_read_only_file_system(const std::filesystem::path& path) {
    const FileDescriptor fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
    return fd.get() < 0 && errno == EROFS;
}

}  // namespace gnstor::ssd
