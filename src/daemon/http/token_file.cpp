#include "daemon/http/token_file.hpp"

#include "daemon/http/access.hpp"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

namespace gnstor::daemon {
namespace {

constexpr mode_t kOthers = 077;

using ClosingDescriptor = std::unique_ptr<const int, void (*)(const int*)>;
ClosingDescriptor owned(const int& fd) {
    return {&fd, [](const int* f) {
                if (*f >= 0) ::close(*f);
            }};
}

Result<std::string> random_token() {
    std::array<unsigned char, 32> bytes{};
    if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
        return error(Errc::kIo, "the system gives no random bytes for a token: {}", std::strerror(errno));
    std::string text;
    for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
    return text;
}

}  // namespace

Result<std::string> read_token(const std::filesystem::path& file) {
    const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return error(errno == ENOENT ? Errc::kNotFound : Errc::kPermission,
                     "the token file {} cannot be read: {}", file.string(), std::strerror(errno));
    const ClosingDescriptor closes = owned(fd);
    struct stat info {};
    if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
        return error(Errc::kInvalidArgument, "the token file {} is not a regular file", file.string());
    if ((info.st_mode & kOthers) != 0)
        return error(Errc::kPermission,
                     "other users may read the token file {} (mode {:04o}); run 'chmod 600' on it, and if "
                     "they have read it, make a new token (remove the file and restart gnstord)",
                     file.string(), info.st_mode & 07777u);
    std::array<char, 1024> text{};
    const ssize_t got = ::read(fd, text.data(), text.size());
    std::string token(text.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
    while (!token.empty() && (token.back() == '\n' || token.back() == '\r' || token.back() == ' '))
        token.pop_back();
    if (is_token(token)) return token;
    return error(Errc::kInvalidArgument,
                 "{} holds no valid token (16 to 256 letters, digits and -._~+/=); remove it, and gnstord "
                 "creates a new one when it starts",
                 file.string());
}

Result<std::string> read_or_make_token(const std::filesystem::path& file) {
    Result<std::string> there = read_token(file);
    if (there.ok() || there.error().code != Errc::kNotFound) return there;
    GN_ASSIGN(const std::string token, random_token());
    // Written to another file and then linked: readers see a complete file or none, and the first writer
    // wins.
    const std::string beside = fmt::format("{}.{}", file.string(), ::getpid());
    // O_EXCL: an existing file or link could be another user's, who would then learn the token.
    ::unlink(beside.c_str());
    const int fd = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return error(Errc::kIo, "the token file {} cannot be made: {}", file.string(), std::strerror(errno));
    const ClosingDescriptor closes = owned(fd);
    const std::string line = token + "\n";
    const bool written = ::fchmod(fd, 0600) == 0 &&
                         ::write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size()) &&
                         ::fsync(fd) == 0;
    const int failed = !written ? errno : ::link(beside.c_str(), file.c_str()) != 0 ? errno : 0;
    ::unlink(beside.c_str());
    if (failed != 0 && failed != EEXIST)
        return error(Errc::kIo, "the token file {} cannot be made: {}", file.string(), std::strerror(failed));
    return read_token(file);
}

}  // namespace gnstor::daemon
