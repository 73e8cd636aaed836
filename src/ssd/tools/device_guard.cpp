// device_guard.cpp: queries the kernel for a device's users and identity. Signatures: device_signatures.cpp.
#include "ssd/tools/device_guard.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include "ssd/flash/file/file_store.hpp"

namespace gnstor::ssd {
namespace {

namespace fs = std::filesystem;

/// Contents of a small file of sysfs, without non-printable characters and without surrounding blanks.
std::string read_small(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::string text(4096, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
    std::erase_if(text, [](char c) { return c < ' ' || c > '~'; });
    const auto first = text.find_first_not_of(' ');
    if (first == std::string::npos) return {};
    return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

std::string number_of(dev_t device) {
    return fmt::format("{}:{}", major(device), minor(device));
}

/// A device with its partitions, and the devices stacked on it or on them (device mapper, RAID).
struct Family {
    struct Member {
        std::string number;  ///< major:minor
        std::string name;
    };
    std::vector<Member> members;  ///< the device itself first
    std::vector<std::string> partitions, holders;
};

void add_holders(const fs::path& folder, Family& family) {
    std::error_code none;
    for (const auto& holder : fs::directory_iterator(folder / "holders", none))
        family.holders.push_back(holder.path().filename().string());
}

Family family_of(dev_t device, const KernelView& kernel) {
    Family family;
    std::error_code none;
    const fs::path folder = fs::canonical(kernel.sys / "dev/block" / number_of(device), none);
    if (none) return family;
    family.members.push_back({number_of(device), folder.filename().string()});
    add_holders(folder, family);
    for (const auto& entry : fs::directory_iterator(folder, none)) {
        if (!fs::exists(entry.path() / "partition", none)) continue;
        family.partitions.push_back(entry.path().filename().string());
        family.members.push_back({read_small(entry.path() / "dev"), entry.path().filename().string()});
        add_holders(entry.path(), family);
    }
    std::sort(family.partitions.begin(), family.partitions.end());
    return family;
}

/// Decodes octal escapes (\040): mountinfo and swaps write blanks as these.
std::string unescape(const std::string& text) {
    std::string plain;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '\\' && i + 3 < text.size()) {
            plain += static_cast<char>(std::strtol(text.substr(i + 1, 3).c_str(), nullptr, 8));
            i += 3;
        } else {
            plain += text[i];
        }
    }
    return plain;
}

/// The number of the block device at a path; empty if there is none.
std::string number_at(const std::string& path) {
    struct stat st {};
    return ::stat(path.c_str(), &st) == 0 && S_ISBLK(st.st_mode) ? number_of(st.st_rdev) : std::string();
}

std::string called(const Family& family, const std::string& number) {
    for (std::size_t i = 0; i < family.members.size(); ++i)
        if (family.members[i].number == number)
            return i == 0 ? "it" : "its partition " + family.members[i].name;
    return {};
}

/// proc(5), /proc/pid/mountinfo: 3rd field major:minor, 5th the mount point, the one after " - type " the
/// source. A file system of several devices (btrfs) has a number of its own: there the source is compared.
void find_mounts(const Family& family, const KernelView& kernel, std::vector<std::string>& in_use) {
    std::ifstream table(kernel.proc / "self/mountinfo");
    std::set<std::string> said;
    for (std::string line; std::getline(table, line);) {
        std::istringstream words(line);
        std::string id, parent, number, root, point, word, type, source;
        words >> id >> parent >> number >> root >> point;
        while (words >> word && word != "-") {
        }
        words >> type >> source;
        std::string who = called(family, number);
        if (who.empty()) who = called(family, number_at(unescape(source)));
        if (who.empty()) continue;
        std::string sentence = fmt::format("{} is mounted at {}", who, unescape(point));
        if (said.insert(sentence).second) in_use.push_back(std::move(sentence));
    }
}

/// proc(5), /proc/swaps: a heading, then a file name first in each line.
void find_swaps(const Family& family, const struct stat& target, const KernelView& kernel,
                std::vector<std::string>& in_use) {
    std::ifstream table(kernel.proc / "swaps");
    std::string line;
    std::getline(table, line);
    while (std::getline(table, line)) {
        const std::string file = unescape(line.substr(0, line.find_first_of(" \t")));
        const std::string who = called(family, number_at(file));
        struct stat st {};
        const bool same = ::stat(file.c_str(), &st) == 0 && st.st_dev == target.st_dev &&
                          st.st_ino == target.st_ino && S_ISREG(st.st_mode);
        if (!who.empty() || same) in_use.push_back(fmt::format("{} is used as swap", same ? "it" : who));
    }
}

/// Files of sysfs that may hold a disk's serial number, best first. A partition uses its disk's.
void find_serial(dev_t device, const KernelView& kernel, DeviceFacts& facts) {
    std::error_code none;
    fs::path folder = fs::canonical(kernel.sys / "dev/block" / number_of(device), none);
    if (none) return;
    if (fs::exists(folder / "partition", none)) folder = folder.parent_path();
    for (const char* name : {"device/serial", "serial", "device/vpd_pg80", "wwid", "device/wwid", "dm/uuid",
                             "md/uuid", "loop/backing_file"}) {
        std::string text = read_small(folder / name);
        if (text.empty()) continue;
        facts.serial = std::move(text);
        facts.serial_from = fmt::format("/sys/block/{}/{}", folder.filename().string(), name);
        return;
    }
}

Errc errc_of(int number) {
    return number == ENOENT ? Errc::kNotFound
                            : (number == EACCES || number == EPERM ? Errc::kPermission : Errc::kIo);
}

std::string joined(const std::vector<std::string>& sentences) {
    std::string text;
    for (const std::string& s : sentences) text += (text.empty() ? "" : ", ") + s;
    return text;
}

}  // namespace

Result<DeviceFacts> inspect_device(const fs::path& path, const KernelView& kernel) {
    // Not exclusive: a device in use is inspected too, so that all objections are reported at once.
    const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat st {};
    if (fd.get() < 0 || ::fstat(fd.get(), &st) != 0)
        return error(errc_of(errno), "cannot open {}: {}", path.string(), std::strerror(errno));
    DeviceFacts facts;
    facts.signatures_known = knows_signatures();
    if (S_ISREG(st.st_mode)) {
        facts.bytes = static_cast<std::uint64_t>(st.st_size);
        find_swaps({}, st, kernel, facts.in_use);
    } else if (S_ISBLK(st.st_mode)) {
        facts.block_device = true;
        if (::ioctl(fd.get(), BLKGETSIZE64, &facts.bytes) != 0)
            return error(Errc::kIo, "cannot ask for the size of {}: {}", path.string(), std::strerror(errno));
        const Family family = family_of(st.st_rdev, kernel);
        if (!family.members.empty()) facts.name = family.members[0].name;
        find_mounts(family, kernel, facts.in_use);
        find_swaps(family, st, kernel, facts.in_use);
        if (!family.holders.empty())
            facts.in_use.push_back(fmt::format("it is a part of {}", joined(family.holders)));
        // Catches users that are in none of the tables (another program with O_EXCL).
        const FileDescriptor mine(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_EXCL));
        if (mine.get() < 0 && errno == EBUSY && facts.in_use.empty())
            facts.in_use.emplace_back("another program or the kernel has it open exclusively");
        find_serial(st.st_rdev, kernel, facts);
        if (!family.partitions.empty())
            facts.signatures.push_back(fmt::format("partitions ({})", joined(family.partitions)));
    } else {
        return error(Errc::kInvalidArgument,
                     "{} is neither a file nor a block device; name one of these for a store", path.string());
    }
    if (facts.bytes != 0) {
        GN_ASSIGN(const std::vector<std::string> found, find_signatures(fd.get(), path));
        facts.signatures.insert(facts.signatures.end(), found.begin(), found.end());
    }
    return facts;
}

Result<void> allow_format(const DeviceFacts& facts, const fs::path& path, const FormatConsent& consent) {
    if (!facts.in_use.empty())
        return error(Errc::kBusy, "{} is not formatted: {}; free it first (--force does not help)",
                     path.string(), joined(facts.in_use));
    if (!facts.block_device) {
        if (!consent.device_serial.empty())
            return error(
                Errc::kInvalidArgument,
                "{} is a file, which has no serial number; leave --device-serial out, or name a block device",
                path.string());
        if (consent.force || facts.bytes == 0) return {};
        return error(Errc::kExists, "{} exists and has {} bytes{}; --force overwrites it", path.string(),
                     facts.bytes, facts.signatures.empty() ? "" : ", with " + joined(facts.signatures));
    }
    const std::string its = facts.serial.empty()
                                ? "the device reports no serial number"
                                : fmt::format("its serial number is in {}", facts.serial_from);
    if (!consent.device_serial.empty() && consent.device_serial != facts.serial)
        return error(Errc::kInvalidArgument,
                     "{} is not formatted: '{}' is not its serial number ({}); is it the device you mean?",
                     path.string(), consent.device_serial, its);
    if (facts.signatures.empty() && facts.signatures_known) return {};
    const std::string what =
        facts.signatures.empty()
            ? "this program was built without libblkid, so it cannot tell what the device contains"
            : fmt::format("it contains {}", joined(facts.signatures));
    if (consent.force && !consent.device_serial.empty()) return {};
    if (facts.serial.empty())
        return error(Errc::kExists,
                     "{} is not formatted: {}; the device has no serial number, which --force needs: wipe "
                     "the device first (wipefs -a)",
                     path.string(), what);
    return error(consent.force ? Errc::kInvalidArgument : Errc::kExists,
                 "{} is not formatted: {}; to destroy its contents, give --force and --device-serial ({})",
                 path.string(), what, its);
}

}  // namespace gnstor::ssd
