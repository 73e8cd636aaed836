#include "ssd/flash/file/store_head.hpp"

#include <gnstor/base/crc32c.hpp>

#include "ssd/flash/file/posix_file.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

namespace gnstor::ssd {

namespace {

bool possible_geometry(const Superblock& s) {
    const std::uint64_t pages = std::uint64_t{s.units} * s.pages_per_unit;
    const std::uint64_t dies = std::uint64_t{s.channels} * s.dies_per_channel;
    return pages != 0 && pages < deengine::kNoPage && s.page_bytes == nvme::kBlockBytes &&
           s.oob_bytes == sizeof(deengine::PageOob) && s.metadata_bytes >= kStorePage &&
           s.metadata_bytes % kStorePage == 0 && s.metadata_bytes <= (1u << 30) && dies != 0 &&
           dies <= kMaxDies && s.service_units != 0 && s.service_units <= kMaxServiceUnits &&
           s.service_units <= s.units;
}

Error refuse_version(const Superblock& s, const std::filesystem::path& path) {
    if (s.format_version > kStoreFormatVersion) {
        return error(Errc::kUnsupported,
                     "the store {} has format version {}, this program knows up to {}; use a newer gnstor",
                     path.string(), s.format_version, kStoreFormatVersion);
    }
    return error(Errc::kUnsupported,
                 "the store {} has format version {}, which this program cannot recover; move the store away "
                 "or format it again (the version of gnstor that made it can read it; replicas on other "
                 "drives, where there are any, have its blocks)",
                 path.string(), s.format_version);
}

}  // namespace

std::string serial_from(const Uuid& uuid) {
    std::string serial = "GN";
    for (std::size_t i = 0; i < 8; ++i) serial += fmt::format("{:02X}", uuid.bytes[i]);
    return serial;
}

Result<Superblock> make_superblock(const NewStore& what, const std::filesystem::path& path) {
    const std::uint64_t pages = what.geometry.pages();
    if (pages == 0 || pages >= deengine::kNoPage) {
        return error(Errc::kInvalidArgument,
                     "cannot make the store {} with {} flash pages; choose 1 to 2^32 - 2 (up to 16 TiB)",
                     path.string(), pages);
    }
    if (what.metadata_bytes < kStorePage || what.metadata_bytes % kStorePage != 0 ||
        what.metadata_bytes > (1u << 30)) {
        return error(Errc::kInvalidArgument,
                     "cannot make the store {}: metadata slots of {} bytes are not a multiple of {}",
                     path.string(), what.metadata_bytes, kStorePage);
    }
    Superblock s{};
    if (what.serial.size() > sizeof s.serial) {
        return error(Errc::kInvalidArgument, "the serial number '{}' is longer than 20 characters",
                     what.serial);
    }
    // NVMe Base 2.0, 5.17.2.1: an ASCII string. It is also shown to people and logged.
    if (!std::all_of(what.serial.begin(), what.serial.end(), [](char c) { return c > ' ' && c <= '~'; })) {
        return error(Errc::kInvalidArgument,
                     "a serial number may contain only ASCII letters, digits and punctuation, and no blanks; "
                     "choose another");
    }
    std::copy(kStoreMagic.begin(), kStoreMagic.end(), s.magic);
    s.format_version = kStoreFormatVersion;
    s.page_bytes = nvme::kBlockBytes;
    const Uuid uuid = what.drive_uuid.is_nil() ? Uuid::random() : what.drive_uuid;
    std::copy(uuid.bytes.begin(), uuid.bytes.end(), s.drive_uuid);
    s.units = what.geometry.units;
    s.pages_per_unit = what.geometry.pages_per_unit;
    s.channels = what.geometry.channels;
    s.dies_per_channel = what.geometry.dies_per_channel;
    s.service_units = what.service_units;
    s.oob_bytes = sizeof(deengine::PageOob);
    s.metadata_bytes = what.metadata_bytes;
    if (!possible_geometry(s)) {
        return error(
            Errc::kInvalidArgument,
            "cannot make the store {} with {} channels of {} dies and {} service units over {} erase units; "
            "choose 1 to {} dies in all, and 1 to {} service units, no more than erase units",
            path.string(), s.channels, s.dies_per_channel, s.service_units, s.units, kMaxDies,
            kMaxServiceUnits);
    }
    const StoreLayout layout = StoreLayout::of(what.geometry, what.metadata_bytes);
    s.metadata_offset = layout.metadata_offset;
    s.oob_offset = layout.oob_offset;
    s.data_offset = layout.data_offset;
    s.file_bytes = layout.file_bytes;
    s.capacity_bytes = what.capacity_bytes;
    s.over_provisioning_percent = what.over_provisioning_percent;
    std::string serial = what.serial.empty() ? serial_from(uuid) : what.serial;
    serial.resize(sizeof s.serial, ' ');
    std::copy(serial.begin(), serial.end(), s.serial);
    s.crc = crc32c(&s, offsetof(Superblock, crc));
    return s;
}

std::string serial_of(const Superblock& s) {
    std::string serial(std::begin(s.serial), std::end(s.serial));
    serial.erase(serial.find_last_not_of(' ') + 1);
    return serial;
}

NewStore recipe_of(const Superblock& s) {
    NewStore what{.geometry = s.geometry(),
                  .capacity_bytes = s.capacity_bytes,
                  .over_provisioning_percent = s.over_provisioning_percent,
                  .metadata_bytes = s.metadata_bytes,
                  .serial = serial_of(s),
                  .service_units = s.service_units};
    std::copy(std::begin(s.drive_uuid), std::end(s.drive_uuid), what.drive_uuid.bytes.begin());
    return what;
}

Result<std::uint64_t> store_room(int fd, const std::filesystem::path& path) {
    struct stat st {};
    if (::fstat(fd, &st) != 0) return error(Errc::kIo, "cannot examine {}: {}", path.string(), errno_text());
    if (S_ISREG(st.st_mode)) return static_cast<std::uint64_t>(st.st_size);
    std::uint64_t bytes = 0;
    if (S_ISBLK(st.st_mode)) {
        if (::ioctl(fd, BLKGETSIZE64, &bytes) == 0) return bytes;
        return error(Errc::kIo, "cannot learn the size of the device {}: {}", path.string(), errno_text());
    }
    return error(Errc::kInvalidArgument, "{} is neither a regular file nor a block device, so it is no store",
                 path.string());
}

Result<Superblock> read_superblock(int fd, const std::filesystem::path& path) {
    GN_ASSIGN(const std::uint64_t size, store_room(fd, path));
    Superblock s{};
    if (size < sizeof s || !read_all(fd, &s, sizeof s, 0)) {
        return error(Errc::kCorrupt, "{} is no GNStor store: it has {} bytes and a superblock alone has {}",
                     path.string(), size, sizeof s);
    }
    if (!std::equal(kStoreMagic.begin(), kStoreMagic.end(), s.magic)) {
        return error(Errc::kCorrupt, "{} is no GNStor store: its first bytes are not the magic of one",
                     path.string());
    }
    // Check the version before the checksum: another format may place its checksum elsewhere.
    if (s.format_version < kOldestStoreFormatVersion || s.format_version > kStoreFormatVersion)
        return refuse_version(s, path);
    if (s.crc != crc32c(&s, offsetof(Superblock, crc))) {
        return error(Errc::kCorrupt,
                     "the superblock of the store {} is damaged: its checksum does not match; read from "
                     "replicas on other drives, where there are any",
                     path.string());
    }
    if (!possible_geometry(s)) {
        return error(
            Errc::kCorrupt,
            "the superblock of the store {} names an impossible geometry ({} units of {} pages of {} "
            "bytes, {} channels of {} dies, {} service units)",
            path.string(), s.units, s.pages_per_unit, s.page_bytes, s.channels, s.dies_per_channel,
            s.service_units);
    }
    const StoreLayout layout = StoreLayout::of(s.geometry(), s.metadata_bytes);
    if (s.metadata_offset != layout.metadata_offset || s.oob_offset != layout.oob_offset ||
        s.data_offset != layout.data_offset || s.file_bytes != layout.file_bytes) {
        return error(
            Errc::kCorrupt,
            "the superblock of the store {} gives other offsets for its areas than its geometry requires",
            path.string());
    }
    if (s.capacity_bytes > s.geometry().pages() * nvme::kBlockBytes) {
        return error(Errc::kCorrupt, "the store {} promises {} bytes but has only {} pages", path.string(),
                     s.capacity_bytes, s.geometry().pages());
    }
    if (size < s.file_bytes) {
        return error(Errc::kCorrupt,
                     "the store {} is truncated: it has only {} of its {} bytes; read from replicas on other "
                     "drives, where there are any",
                     path.string(), size, s.file_bytes);
    }
    return s;
}

BootRecord new_boot_record() {
    BootRecord r{};
    std::copy(kBootMagic.begin(), kBootMagic.end(), r.magic);
    const Uuid incarnation = Uuid::random();
    std::copy(incarnation.bytes.begin(), incarnation.bytes.end(), r.incarnation);
    r.mode = BootMode::kPower;
    r.state = BootState::kClean;
    return r;
}

std::uint32_t boot_record_crc(const BootRecord& record, DriveSeed drive) {
    return crc32c(&record, offsetof(BootRecord, crc), drive.crc);
}

bool is_whole(const BootRecord& r, DriveSeed drive) {
    return std::equal(kBootMagic.begin(), kBootMagic.end(), r.magic) && r.generation != 0 &&
           r.crc == boot_record_crc(r, drive) &&
           (r.mode == BootMode::kProcess || r.mode == BootMode::kPower) &&
           r.backbone <= BootBackbone::kDirect &&
           (r.state == BootState::kClean || r.state == BootState::kOpen || r.state == BootState::kEmptying);
}

Result<BootRecord> read_boot_record(int fd, const std::filesystem::path& path) {
    GN_ASSIGN(const Superblock superblock, read_superblock(fd, path));
    return read_boot_record(fd, path, seed_of(superblock));
}

Result<BootRecord> read_boot_record(int fd, const std::filesystem::path& path, DriveSeed drive) {
    BootRecord copies[2] = {};
    if (!read_all(fd, copies, sizeof copies, kBootOffset))
        return error(code_of_read(), "cannot read the boot record of the store {}: {}", path.string(),
                     errno_text());
    const bool valid[2] = {is_whole(copies[0], drive), is_whole(copies[1], drive)};
    if (!valid[0] && !valid[1]) {
        return error(
            Errc::kCorrupt,
            "both copies of the boot record of the store {} are damaged: it is not known which incarnation "
            "of the drive the store holds; read from replicas on other drives, where there are any",
            path.string());
    }
    // One damaged copy: torn by a change, or rotten since. A change takes effect only when both copies hold
    // it, so the other copy holds either the change or the state before it.
    return valid[1] && (!valid[0] || copies[1].generation > copies[0].generation) ? copies[1] : copies[0];
}

bool write_boot_record(int fd, BootRecord& record, DriveSeed drive) {
    ++record.generation;
    record.crc = boot_record_crc(record, drive);
    return write_all(fd, &record, sizeof record, kBootOffset) && ::fdatasync(fd) == 0 &&
           write_all(fd, &record, sizeof record, kBootOffset + sizeof record) && ::fdatasync(fd) == 0;
}

Uuid host_boot_id() {
    const FileDescriptor fd(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
    std::array<char, 36> text{};
    if (fd.get() < 0 || ::read(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
        return {};
    const Result<Uuid> parsed = Uuid::parse(std::string_view(text.data(), text.size()));
    return parsed.ok() ? parsed.value() : Uuid{};
}

bool trusted(const BootRecord& r, const Uuid& host_boot) {
    if (r.state == BootState::kEmptying) return false;
    if (r.state == BootState::kClean || r.mode == BootMode::kPower) return true;
    return !host_boot.is_nil() && std::equal(host_boot.bytes.begin(), host_boot.bytes.end(), r.host_boot_id);
}

bool was_only_killed(const BootRecord& r, const Uuid& host_boot) {
    return r.state == BootState::kOpen && r.backbone == BootBackbone::kMapped && r.recovered == 1 &&
           !host_boot.is_nil() && std::equal(host_boot.bytes.begin(), host_boot.bytes.end(), r.host_boot_id);
}

std::uint32_t metadata_header_crc(const MetadataHeader& header, DriveSeed drive) {
    return crc32c(&header, offsetof(MetadataHeader, crc), drive.crc);
}

HeaderCopies compare_headers(const MetadataHeader& first, const MetadataHeader& second,
                             std::uint64_t blob_bytes_max, DriveSeed drive) {
    const auto whole = [&](const MetadataHeader& h) {
        return std::equal(kMetadataMagic.begin(), kMetadataMagic.end(), h.magic) && h.generation != 0 &&
               h.crc == metadata_header_crc(h, drive) && h.length <= blob_bytes_max;
    };
    const bool one = whole(first);
    const bool other = whole(second);
    HeaderCopies copies;
    copies.whole = one || other;
    copies.both_whole = one && other && first.generation == second.generation;
    copies.rotten = !copies.whole && (first.crc != 0 || second.crc != 0);
    if (copies.whole)
        copies.header = one && (!other || first.generation >= second.generation) ? first : second;
    return copies;
}

}  // namespace gnstor::ssd
