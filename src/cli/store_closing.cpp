#include "cli/store_closing.hpp"

#include "cli/process.hpp"
#include "cli/store_files.hpp"
#include "ssd/flash/file/store_head.hpp"

#include <fmt/ranges.h>

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace gnstor::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRunUpBeforeARestart =
    "run 'gnstor up' before this machine is restarted: it recovers everything that was acknowledged; after a "
    "restart of the machine, SSDs with durability 'process' start empty, and their old stores are renamed to "
    "*.untrusted-*";

/// Whether /proc/PID/fdinfo/FD says that the descriptor may write.
bool may_write(const fs::path& fdinfo) {
    std::ifstream in(fdinfo);
    for (std::string word; in >> word;) {
        int flags = 0;
        if (word == "flags:" && in >> std::oct >> flags) return (flags & O_ACCMODE) != O_RDONLY;
    }
    return false;
}

/// -1: the file is no store.
ssd::FileDescriptor open_store(const fs::path& file) {
    struct stat what = {};
    if (::stat(file.c_str(), &what) != 0 || (!S_ISREG(what.st_mode) && !S_ISBLK(what.st_mode)))
        return ssd::FileDescriptor();
    ssd::FileDescriptor fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    decltype(ssd::Superblock::magic) magic = {};
    const bool is_store = fd.get() >= 0 && ssd::read_all(fd.get(), magic, sizeof magic, 0) &&
                          std::equal(ssd::kStoreMagic.begin(), ssd::kStoreMagic.end(), magic);
    return is_store ? std::move(fd) : ssd::FileDescriptor();
}

}  // namespace

StoresInUse StoresInUse::of(pid_t pid) {
    StoresInUse found;
    const fs::path process = fs::path("/proc") / std::to_string(pid);
    std::error_code failed;
    for (auto it = fs::directory_iterator(process / "fd", failed); !failed && it != fs::directory_iterator();
         it.increment(failed)) {
        if (!may_write(process / "fdinfo" / it->path().filename())) continue;
        ssd::FileDescriptor fd = open_store(it->path());
        std::error_code unreadable;
        std::string path = fs::read_symlink(it->path(), unreadable).string();
        // With --direct a process has two descriptors of each store.
        const bool known = std::any_of(found.stores_.begin(), found.stores_.end(),
                                       [&](const OpenStore& s) { return s.path == path; });
        if (fd.get() >= 0 && !known) found.stores_.push_back({std::move(path), std::move(fd)});
    }
    std::sort(found.stores_.begin(), found.stores_.end(),
              [](const OpenStore& a, const OpenStore& b) { return a.path < b.path; });
    return found;
}

StoresInUse StoresInUse::in(const std::vector<fs::path>& folders) {
    StoresInUse found;
    for (const fs::path& folder : folders) {
        const auto files = store_files(folder);
        if (!files.ok()) continue;
        for (const fs::path& file : *files)
            if (ssd::FileDescriptor fd = open_store(file); fd.get() >= 0)
                found.stores_.push_back({file.string(), std::move(fd)});
    }
    return found;
}

std::string StoresInUse::lost_by_restart() const {
    std::vector<std::string> open;
    for (const OpenStore& store : stores_) {
        const Result<ssd::BootRecord> record = ssd::read_boot_record(store.file.get(), store.path);
        if (record.ok() && record->state != ssd::BootState::kClean && record->mode == ssd::BootMode::kProcess)
            open.push_back(store.path);
    }
    if (open.empty()) return "";
    return fmt::format("{} {} not closed: {}", fmt::join(open, ", "), open.size() == 1 ? "is" : "are",
                       kRunUpBeforeARestart);
}

std::string StoresInUse::unfinished(const fs::path& pid_file, pid_t pid) const {
    std::vector<std::string> open;
    bool survives_no_restart = false;
    for (const OpenStore& store : stores_) {
        const Result<ssd::BootRecord> record = ssd::read_boot_record(store.file.get(), store.path);
        if (record.ok() && record->state == ssd::BootState::kClean) continue;
        open.push_back(store.path);
        survives_no_restart |= record.ok() && record->mode == ssd::BootMode::kProcess;
    }
    if (open.empty() && read_pid_file(pid_file) != pid) return "";
    if (open.empty())
        return "did not finish: it was killed or failed; nothing that was acknowledged is lost, and the next "
               "'gnstor up' recovers it";
    // A process that was killed leaves its pid file.
    const char* const why =
        read_pid_file(pid_file) == pid
            ? "it was killed or failed"
            : "it failed, or an SSD's recovery waits for room on its disk (the log says which)";
    return fmt::format("did not close {}: {}; {}", fmt::join(open, ", "), why,
                       survives_no_restart
                           ? kRunUpBeforeARestart
                           : "nothing that was acknowledged is lost: the next 'gnstor up' recovers it");
}

}  // namespace gnstor::cli
