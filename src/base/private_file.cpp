#include <gnstor/base/private_file.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace gnstor {
namespace {

constexpr mode_t kOthers = 077;
constexpr mode_t kFolderMode = 0711;  // others reach its sockets by name, and cannot lock or list it

using ClosingDescriptor = std::unique_ptr<const int, void (*)(const int*)>;
ClosingDescriptor owned(const int& fd) {
    return {&fd, [](const int* f) {
                if (*f >= 0) ::close(*f);
            }};
}

}  // namespace

Result<std::string> read_private_file(const std::filesystem::path& file, std::size_t limit,
                                      const PrivateFileWords& words) {
    const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return error(errno == ENOENT ? Errc::kNotFound : Errc::kPermission, "the {} {} cannot be read: {}",
                     words.name, file.string(), std::strerror(errno));
    const ClosingDescriptor closes = owned(fd);
    struct stat info {};
    if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
        return error(Errc::kInvalidArgument, "the {} {} is not a regular file", words.name, file.string());
    if (info.st_uid != ::geteuid() && info.st_uid != 0)
        return error(
            Errc::kPermission,
            "the {} {} belongs to user {}, who knows what is in it and may change it; run this as that "
            "user, or {}",
            words.name, file.string(), info.st_uid, words.replacement);
    if ((info.st_mode & kOthers) != 0)
        return error(Errc::kPermission,
                     "other users may read the {} {} (mode {:04o}); run 'chmod 600' on it, and if they have "
                     "read it, {}",
                     words.name, file.string(), info.st_mode & 07777u, words.replacement);
    std::string text(limit, '\0');
    const ssize_t got = ::read(fd, text.data(), text.size());
    text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return text;
}

Result<void> make_private_folder(const std::filesystem::path& path) {
    // "a/" names the folder "a", whose parent is not "a".
    const std::filesystem::path folder = path.has_filename() ? path : path.parent_path();
    std::error_code failed;
    const std::filesystem::path parent = folder.parent_path();
    if (!parent.empty()) std::filesystem::create_directories(parent, failed);
    if (!failed && ::mkdir(folder.c_str(), kFolderMode) != 0 && errno != EEXIST)
        failed = std::error_code(errno, std::generic_category());
    struct stat info {};
    if (!failed && ::stat(folder.c_str(), &info) != 0)
        failed = std::error_code(errno, std::generic_category());
    if (!failed && !S_ISDIR(info.st_mode)) failed = std::make_error_code(std::errc::not_a_directory);
    if (failed)
        return error(Errc::kIo, "the folder {} cannot be made: {}", folder.string(), failed.message());
    if (info.st_uid != ::geteuid() && info.st_uid != 0)
        return error(
            Errc::kPermission,
            "the folder {} belongs to user {}, who could put other keys and files in it; run this as "
            "that user, or choose another folder",
            folder.string(), info.st_uid);
    if ((info.st_mode & S_IWOTH) != 0)
        return error(Errc::kPermission,
                     "every user may put files in the folder {}, also keys; run 'chmod o-w' on it, or choose "
                     "another folder",
                     folder.string());
    return {};
}

namespace {

/// False: errno says why.
bool write_all(int fd, std::string_view text) {
    while (!text.empty()) {
        const ssize_t done = ::write(fd, text.data(), text.size());
        if (done < 0 && errno == EINTR) continue;
        if (done == 0) errno = EIO;
        if (done <= 0) return false;
        text.remove_prefix(static_cast<std::size_t>(done));
    }
    return true;
}

/// Files that killed writers left beside `file`, which hold its secret. Best effort.
void remove_left_behind(const std::filesystem::path& file) {
    const std::string before = file.filename().string() + ".";
    std::error_code failed;
    const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
    for (auto it = std::filesystem::directory_iterator(folder, failed);
         !failed && it != std::filesystem::directory_iterator(); it.increment(failed)) {
        const std::string name = it->path().filename().string();
        const std::string pid = name.rfind(before, 0) == 0 ? name.substr(before.size()) : "";
        const bool left = !pid.empty() && pid.find_first_not_of("0123456789") == std::string::npos &&
                          ::kill(static_cast<pid_t>(std::atol(pid.c_str())), 0) != 0 && errno == ESRCH;
        std::error_code other;
        if (left) std::filesystem::remove(it->path(), other);
    }
}

/// Writes a complete, durable file beside the one that is meant; `place` then gives it its name. 0, or an
/// errno.
template <class Place>
int write_beside(const std::filesystem::path& file, std::string_view text, mode_t mode, const Place& place) {
    const std::string beside = fmt::format("{}.{}", file.string(), ::getpid());
    remove_left_behind(file);
    // O_EXCL: an existing file or link could be another user's, who would then learn the secret.
    ::unlink(beside.c_str());
    const int fd = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return errno;
    const ClosingDescriptor closes = owned(fd);
    const bool written = ::fchmod(fd, mode) == 0 && write_all(fd, text) && ::fsync(fd) == 0;
    const int failed = !written ? errno : place(beside.c_str());
    ::unlink(beside.c_str());
    return failed;
}

/// Makes the name of a file durable.
int sync_folder_of(const std::filesystem::path& file) {
    const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
    const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const ClosingDescriptor closes = owned(fd);
    return fd >= 0 && ::fsync(fd) == 0 ? 0 : errno;
}

Error not_made(const std::filesystem::path& file, std::string_view name, int failed) {
    return error(Errc::kIo, "the {} {} cannot be made: {}{}", name, file.string(), std::strerror(failed),
                 failed == ENOSPC ? "; free some disk space" : "");
}

}  // namespace

Result<void> create_file(const std::filesystem::path& file, std::string_view text, mode_t mode,
                         std::string_view name) {
    // A link fails if there is a file of that name: the first writer wins.
    const int failed = write_beside(file, text, mode, [&](const char* beside) {
        const bool there = ::link(beside, file.c_str()) == 0 || errno == EEXIST;
        return there ? sync_folder_of(file) : errno;
    });
    if (failed != 0) return not_made(file, name, failed);
    return {};
}

Result<void> replace_private_file(const std::filesystem::path& file, std::string_view text,
                                  std::string_view name) {
    const int failed = write_beside(file, text, 0600, [&](const char* beside) {
        return ::rename(beside, file.c_str()) != 0 ? errno : sync_folder_of(file);
    });
    if (failed != 0) return not_made(file, name, failed);
    return {};
}

}  // namespace gnstor
