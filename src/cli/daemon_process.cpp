#include "cli/daemon_process.hpp"

#include "cli/process.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

namespace gnstor::cli {
namespace {

namespace fs = std::filesystem;

fs::path of_process(pid_t pid, const char* what) {
    return fs::path("/proc") / std::to_string(pid) / what;
}

bool holds_open(pid_t pid, const fs::path& file) {
    std::error_code failed;
    for (auto it = fs::directory_iterator(of_process(pid, "fd"), failed);
         !failed && it != fs::directory_iterator(); it.increment(failed)) {
        std::error_code other;
        if (fs::equivalent(it->path(), file, other) && !other) return true;
    }
    return false;
}

/// The process that has locked a file or folder (flock), from proc_locks(5). The device listed there differs
/// on some file systems, so the inode number finds candidates, and their open files decide.
std::optional<pid_t> locker_of(const fs::path& file) {
    struct stat what = {};
    if (::stat(file.c_str(), &what) != 0) return std::nullopt;
    std::ifstream locks("/proc/locks");
    for (std::string line; std::getline(locks, line);) {
        std::istringstream words(line);
        std::string number, kind, mandatory, access, place;
        pid_t pid = 0;
        if (!(words >> number >> kind >> mandatory >> access >> pid >> place) || kind != "FLOCK") continue;
        const std::string inode = place.substr(place.rfind(':') + 1);
        if (pid > 1 && inode == std::to_string(what.st_ino) && holds_open(pid, file)) return pid;
    }
    return std::nullopt;
}

}  // namespace

std::optional<pid_t> listener_of(const fs::path& socket) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (socket.native().size() >= sizeof(address.sun_path)) return std::nullopt;
    std::memcpy(address.sun_path, socket.c_str(), socket.native().size());
    // Non-blocking: a listener whose queue is full, because its process is stopped, then counts as none.
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return std::nullopt;
    ucred peer{};
    socklen_t size = sizeof(peer);
    const bool known = ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
                       ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid > 0;
    ::close(fd);
    return known ? std::optional(peer.pid) : std::nullopt;
}

std::optional<pid_t> holder_of(const fs::path& pid_file, const fs::path& lock_file) {
    if (const std::optional<pid_t> named = read_pid_file(pid_file);
        named && alive(*named) && holds_open(*named, lock_file))
        return named;
    // A pid file cannot be written on a full disk.
    return locker_of(lock_file);
}

std::optional<pid_t> daemon_of(const fs::path& directory) {
    if (const std::optional<pid_t> holder = holder_of(directory / kPidFile, directory / kLockFile))
        return holder;
    // On a read-only file system LockedFile::take() may have locked the folder; 'put --store' locks it too,
    // so the program's name decides.
    const std::optional<pid_t> locker = locker_of(directory);
    return locker && is_gnstord(*locker) ? locker : std::nullopt;
}

namespace {

int open_folder(const fs::path& folder) {
    return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

}  // namespace

Result<std::unique_ptr<LockedFile>> LockedFile::take(const fs::path& file, const std::string& taken) {
    int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EROFS) {
        // flock() works on a read-only descriptor. If there is no lock file to open, the folder itself is
        // locked.
        fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
        if (fd < 0) fd = open_folder(file.parent_path());
    }
    if (fd < 0)
        return error(Errc::kIo, "the lock file {} cannot be created: {}", file.string(),
                     std::strerror(errno));
    return lock(fd, taken);
}

Result<std::unique_ptr<LockedFile>> LockedFile::take(const fs::path& file, const std::string& taken,
                                                     std::chrono::milliseconds deadline) {
    Result<std::unique_ptr<LockedFile>> held = error(Errc::kBusy, "{}", taken);
    (void)wait_until(deadline, [&] {
        held = take(file, taken);
        return held.ok() || held.error().code != Errc::kBusy;
    });
    return held;
}

Result<std::unique_ptr<LockedFile>> LockedFile::take_folder(const fs::path& folder,
                                                            const std::string& taken) {
    const int fd = open_folder(folder);
    if (fd < 0)
        return error(Errc::kIo, "the folder {} cannot be opened: {}", folder.string(), std::strerror(errno));
    GN_ASSIGN(std::unique_ptr<LockedFile> held, lock(fd, taken));
    // The previous holder of the lock may have removed the folder: the path must still lead to it.
    struct stat mine = {};
    struct stat named = {};
    if (::fstat(fd, &mine) != 0 || ::stat(folder.c_str(), &named) != 0 || mine.st_ino != named.st_ino ||
        mine.st_dev != named.st_dev)
        return error(Errc::kBusy, "{}", taken);
    return held;
}

Result<std::unique_ptr<LockedFile>> LockedFile::lock(int fd, const std::string& taken) {
    std::unique_ptr<LockedFile> held(new LockedFile(fd));
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0) return error(Errc::kBusy, "{}", taken);
    return held;
}

bool LockedFile::is_folder() const {
    struct stat what {};
    return ::fstat(fd_, &what) == 0 && S_ISDIR(what.st_mode);
}

LockedFile::~LockedFile() {
    ::close(fd_);
}

bool is_gnstord(pid_t pid) {
    std::error_code failed;
    const std::string program = fs::read_symlink(of_process(pid, "exe"), failed).filename().string();
    return program.rfind("gnstord", 0) == 0;
}

}  // namespace gnstor::cli
