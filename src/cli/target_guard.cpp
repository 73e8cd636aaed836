#include "cli/target_guard.hpp"

#include "cli/daemon_process.hpp"
#include "cli/node_process.hpp"
#include "ssd/flash/file/posix_file.hpp"
#include "ssd/flash/store_format.hpp"

#include <fmt/core.h>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

namespace gnstor::cli {
namespace {

namespace fs = std::filesystem;

/// A folder that contains any of these is an array's.
constexpr std::array kSignsOfAnArray = {"ssd-0.store", kLockFile, kNodeLockFile};

Error refusal(const fs::path& named, const std::string& what) {
    return error(Errc::kInvalidArgument, "{} is not written: {}; name another file", named.string(), what);
}

bool same(const struct stat& a, const struct stat& b) {
    return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

bool is_same(const fs::path& path, const struct stat& what) {
    struct stat info {};
    return ::stat(path.c_str(), &info) == 0 && same(info, what);
}

bool is_array_folder(const fs::path& folder) {
    std::error_code failed;
    for (const char* sign : kSignsOfAnArray)
        if (fs::exists(fs::symlink_status(folder / sign, failed))) return true;
    return false;
}

bool starts_as_a_store(int fd) {
    std::array<char, ssd::kStoreMagic.size()> start{};
    return ssd::read_all(fd, start.data(), start.size(), 0) && start == ssd::kStoreMagic;
}

bool is_locked(int fd) {
    if (::flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK) return true;
    struct flock held {};
    held.l_type = F_WRLCK;
    held.l_whence = SEEK_SET;
    return ::fcntl(fd, F_GETLK, &held) == 0 && held.l_type != F_UNLCK;
}

Result<void> refuse_by_contents(const fs::path& named, const struct stat& there, bool by_name) {
    if (!S_ISREG(there.st_mode) && !S_ISBLK(there.st_mode)) return {};
    const ssd::FileDescriptor fd(::open(named.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
    if (fd.get() < 0) return {};  // this user may not read it: its contents cannot be checked
    if (starts_as_a_store(fd.get())) return refusal(named, "it is the store of an SSD");
    // Not for an inherited descriptor: its opener may hold the lock, as in `flock out gnstor cat x > out`.
    if (by_name && is_locked(fd.get()))
        return refusal(named, "another program has locked it and is using it");
    return {};
}

/// Whether the folder, or with `deeper` an array's folder inside it (a node's), contains this file.
bool holds(const fs::path& folder, const struct stat& what, bool deeper = true) {
    std::error_code failed;
    for (auto it = fs::directory_iterator(folder, failed); !failed && it != fs::directory_iterator();
         it.increment(failed)) {
        std::error_code unknown;
        if (is_same(it->path(), what)) return true;
        if (deeper && it->is_directory(unknown) && is_array_folder(it->path()) &&
            holds(it->path(), what, false))
            return true;
    }
    return false;
}

}  // namespace

Result<void> refuse_what_arrays_use(const fs::path& named, const fs::path& real,
                                    const std::optional<struct stat>& there, const ArrayPlaces& array) {
    if (!real.empty()) {
        const fs::path folder = real.has_parent_path() ? real.parent_path() : fs::path(".");
        if (is_array_folder(folder))
            return refusal(named, fmt::format("{} is the folder of an array, which keeps its files there",
                                              folder.string()));
        if (there && S_ISSOCK(there->st_mode)) return refusal(named, "it is a socket");
    }
    if (!there) return {};
    if (S_ISREG(there->st_mode) || S_ISSOCK(there->st_mode)) {
        for (const fs::path& file : array.files)
            if (is_same(file, *there))
                return refusal(named, fmt::format("it is {}, a file of the array", file.string()));
        for (const fs::path& folder : array.folders)
            if (is_array_folder(folder) && holds(folder, *there))
                return refusal(named, fmt::format("it is a file of the array in {}", folder.string()));
    }
    return refuse_by_contents(named, *there, !real.empty());
}

}  // namespace gnstor::cli
