#include "cli/put_intent.hpp"

#include "ssd/flash/file/posix_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace gnstor::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSuffix = ".putting";

fs::path file_of(const fs::path& folder, const std::string& name) {
    return folder / (name + kSuffix);
}

bool sync_folder(const fs::path& folder) {
    const ssd::FileDescriptor fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return fd.get() >= 0 && (::fsync(fd.get()) == 0 || errno == EINVAL);  // EINVAL: no fsync of folders
}

}  // namespace

Result<std::unique_ptr<PutIntent>> PutIntent::begin(const fs::path& folder, const std::string& name) {
    const fs::path file = file_of(folder, name);
    const ssd::FileDescriptor fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    if (fd.get() < 0 || !sync_folder(folder))
        return error(
            errno == ENOSPC || errno == EDQUOT ? Errc::kNoSpace : Errc::kIo,
            "'{}' was not stored: the file {}, which marks its put as unfinished, cannot be created: {}",
            name, file.string(), ssd::errno_text());
    return std::unique_ptr<PutIntent>(new PutIntent(folder, name));
}

Result<void> PutIntent::forget(const fs::path& folder, const std::string& name) {
    const fs::path file = file_of(folder, name);
    if ((::unlink(file.c_str()) != 0 && errno != ENOENT) || !sync_folder(folder))
        return error(Errc::kIo,
                     "the file {}, which marks the put of '{}' as unfinished, cannot be removed: {}",
                     file.string(), name, ssd::errno_text());
    return {};
}

std::vector<std::string> PutIntent::left_behind(const fs::path& folder) {
    std::vector<std::string> names;
    std::error_code failed;
    const std::string suffix = kSuffix;
    for (auto it = fs::directory_iterator(folder, failed); !failed && it != fs::directory_iterator();
         it.increment(failed)) {
        const std::string file = it->path().filename().string();
        if (file.size() > suffix.size() && file.ends_with(suffix))
            names.push_back(file.substr(0, file.size() - suffix.size()));
    }
    return names;
}

}  // namespace gnstor::cli
