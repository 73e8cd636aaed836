// device_signatures.cpp: the signatures on a file or device that libblkid, and GNStor itself, recognise. Part
// of device_guard.hpp.
#include "ssd/tools/device_guard.hpp"

#include <fcntl.h>
#include <unistd.h>

#if GN_WITH_BLKID
#include <blkid/blkid.h>
#endif

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "ssd/flash/store_format.hpp"

namespace gnstor::ssd {
namespace {

/// A store has no signature that libblkid knows.
bool bears_store(int fd) {
    std::array<char, kStoreMagic.size()> magic{};
    return ::pread(fd, magic.data(), magic.size(), 0) == static_cast<ssize_t>(magic.size()) &&
           magic == kStoreMagic;
}

#if GN_WITH_BLKID
struct FreeProbe {
    void operator()(blkid_struct_probe* p) const { blkid_free_probe(p); }
};
using Probe = std::unique_ptr<blkid_struct_probe, FreeProbe>;

/// A probe for signatures of every kind and their positions, including those with a wrong checksum: a damaged
/// file system may still hold somebody's data.
Result<Probe> make_probe(int fd, const std::filesystem::path& path) {
    Probe probe(blkid_new_probe());
    if (probe == nullptr || blkid_probe_set_device(probe.get(), fd, 0, 0) != 0)
        return error(Errc::kIo, "libblkid cannot look at {}: {}", path.string(), std::strerror(errno));
    blkid_probe_enable_superblocks(probe.get(), 1);
    blkid_probe_set_superblocks_flags(probe.get(), BLKID_SUBLKS_MAGIC | BLKID_SUBLKS_TYPE |
                                                       BLKID_SUBLKS_USAGE | BLKID_SUBLKS_LABEL |
                                                       BLKID_SUBLKS_UUID | BLKID_SUBLKS_BADCSUM);
    blkid_probe_enable_partitions(probe.get(), 1);
    blkid_probe_set_partitions_flags(probe.get(), BLKID_PARTS_MAGIC | BLKID_PARTS_FORCE_GPT);
    return probe;
}

std::string value_of(blkid_probe probe, const char* name) {
    const char* data = nullptr;
    std::size_t bytes = 0;
    if (blkid_probe_lookup_value(probe, name, &data, &bytes) != 0 || bytes == 0) return {};
    // Labels are foreign bytes: replace those that are not printable.
    std::string text(data, bytes - 1);
    std::replace_if(
        text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
    return text;
}

std::string describe(blkid_probe probe) {
    const std::string table = value_of(probe, "PTTYPE");
    if (!table.empty()) return fmt::format("a partition table ({})", table);
    const std::string type = value_of(probe, "TYPE");
    const std::string usage = value_of(probe, "USAGE");
    std::string text =
        fmt::format("a signature of {}{}", type.empty() ? "an unknown kind" : type,
                    usage == "filesystem" ? " (file system)" : (usage.empty() ? "" : " (" + usage + ")"));
    if (const std::string label = value_of(probe, "LABEL"); !label.empty())
        text += fmt::format(" labelled '{}'", label);
    if (const std::string uuid = value_of(probe, "UUID"); !uuid.empty())
        text += fmt::format(", UUID {}", uuid);
    return text;
}
#endif

}  // namespace

bool knows_signatures() {
#if GN_WITH_BLKID
    return true;
#else
    return false;
#endif
}

Result<std::vector<std::string>> find_signatures(int fd, const std::filesystem::path& path) {
    std::vector<std::string> found;
    if (bears_store(fd)) found.emplace_back("a GNStor store");
#if GN_WITH_BLKID
    GN_ASSIGN(const Probe probe, make_probe(fd, path));
    for (;;) {
        const int more = blkid_do_probe(probe.get());
        if (more == 1) break;
        if (more < 0)
            return error(Errc::kIo, "libblkid cannot read {} to its end: {}", path.string(),
                         std::strerror(errno));
        found.push_back(describe(probe.get()));
    }
#else
    (void)path;
#endif
    return found;
}

Result<std::uint32_t> wipe_signatures(int fd, const std::filesystem::path& path) {
    std::uint32_t wiped = 0;
#if GN_WITH_BLKID
    GN_ASSIGN(const Probe probe, make_probe(fd, path));
    while (blkid_do_probe(probe.get()) == 0) {
        if (blkid_do_wipe(probe.get(), 0) != 0)
            return error(Errc::kIo, "cannot wipe {} off {}: {}", describe(probe.get()), path.string(),
                         std::strerror(errno));
        ++wiped;
    }
#endif
    const std::array<char, kStoreMagic.size()> nothing{};
    if (bears_store(fd)) {
        if (::pwrite(fd, nothing.data(), nothing.size(), 0) != static_cast<ssize_t>(nothing.size()))
            return error(Errc::kIo, "cannot wipe the old store's head off {}: {}", path.string(),
                         std::strerror(errno));
        ++wiped;
    }
    if (::fsync(fd) != 0)
        return error(Errc::kIo, "cannot synchronize {}: {}", path.string(), std::strerror(errno));
    return wiped;
}

}  // namespace gnstor::ssd
