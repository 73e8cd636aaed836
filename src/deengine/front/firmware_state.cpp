// firmware_state.cpp: serialise and parse; every length is checked before it is used.
#include "deengine/front/firmware_state.hpp"

#include <gnstor/base/crc32c.hpp>

#include <cstring>
#include <type_traits>

namespace gnstor::deengine {
namespace {

constexpr std::uint64_t kMagic = 0x3154415453454544ull;  // "DEESTAT1"
constexpr std::uint32_t kFormatVersion = 1;

struct Header {
    std::uint64_t magic;
    std::uint32_t format_version;
    std::uint32_t total_bytes;
    std::uint64_t term;
    std::uint32_t newest_slot;
    std::uint32_t volumes;
    std::uint32_t deleted;
    std::uint32_t retired;
};
static_assert(sizeof(Header) == 40, "the header of the state blob is 40 bytes");

struct VolumeItem {
    nvme::VolumeRecord record;
    std::uint64_t floor;
};
static_assert(sizeof(VolumeItem) == 392, "a volume in the state blob is 392 bytes");

struct DeletedItem {
    std::uint32_t volume;
    nvme::Epoch last_epoch;
};
static_assert(sizeof(DeletedItem) == 8, "a deleted VID in the state blob is 8 bytes");

template <class T>
void put(std::vector<std::byte>& out, const T& item) {
    static_assert(std::is_trivially_copyable_v<T>, "only plain structures are stored");
    const auto* bytes = reinterpret_cast<const std::byte*>(&item);
    out.insert(out.end(), bytes, bytes + sizeof(T));
}

/// Reads plain structures one after the other; the total length has been checked.
class Reader {
  public:
    explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
    template <class T>
    T get() {
        T item;
        std::memcpy(&item, bytes_.data(), sizeof(T));
        bytes_ = bytes_.subspan(sizeof(T));
        return item;
    }

  private:
    std::span<const std::byte> bytes_;
};

std::uint64_t expected_bytes(const Header& h) {
    return sizeof(Header) + sizeof(placement::ArrayMap) + std::uint64_t{h.volumes} * sizeof(VolumeItem) +
           std::uint64_t{h.deleted} * sizeof(DeletedItem) + std::uint64_t{h.retired} * sizeof(std::uint32_t) +
           sizeof(std::uint32_t);
}

/// The header of a blob whose version, length and CRC are right.
Result<Header> check_header(std::span<const std::byte> blob, Mutation mutation) {
    Header h{};
    if (blob.size() < sizeof(h))
        return error(Errc::kCorrupt,
                     "drive metadata has {} bytes, less than its header; the store is damaged", blob.size());
    std::memcpy(&h, blob.data(), sizeof(h));
    if (h.magic != kMagic)
        return error(Errc::kCorrupt, "drive metadata does not begin with its magic; the store is damaged");
    if (h.format_version != kFormatVersion)
        return error(
            Errc::kUnsupported,
            "drive metadata has format version {}, this program knows {}; use the version that wrote it",
            h.format_version, kFormatVersion);
    if (h.total_bytes != expected_bytes(h) || h.total_bytes > blob.size())
        return error(Errc::kCorrupt,
                     "drive metadata should have {} bytes, but {} were read; the store is damaged",
                     h.total_bytes, blob.size());
    std::uint32_t stored = 0;
    const std::size_t body = h.total_bytes - sizeof(stored);
    std::memcpy(&stored, blob.data() + body, sizeof(stored));
    if (crc32c(blob.data(), body) != stored && mutation != Mutation::kStateCrcIgnored)
        return error(Errc::kCorrupt, "drive metadata fails its CRC; the store is damaged");
    return h;
}

}  // namespace

std::vector<std::byte> FirmwareState::serialise() const {
    const auto volumes = permissions.volumes();
    Header h{kMagic,
             kFormatVersion,
             0,
             term,
             newest_slot,
             static_cast<std::uint32_t>(volumes.size()),
             static_cast<std::uint32_t>(permissions.deleted().size()),
             static_cast<std::uint32_t>(retired_units.size())};
    h.total_bytes = static_cast<std::uint32_t>(expected_bytes(h));
    std::vector<std::byte> out;
    out.reserve(h.total_bytes);
    put(out, h);
    put(out, newest_map);
    for (const Volume& v : volumes) put(out, VolumeItem{v.record, v.floor});
    for (const auto& [vid, epoch] : permissions.deleted()) put(out, DeletedItem{vid, epoch});
    for (const std::uint32_t unit : retired_units) put(out, unit);
    put(out, crc32c(out.data(), out.size()));
    return out;
}

Result<FirmwareState> FirmwareState::parse(std::span<const std::byte> blob, std::uint32_t max_volumes,
                                           std::uint32_t mdts_blocks, std::uint32_t units,
                                           Mutation mutation) {
    FirmwareState state;
    if (blob.empty()) return state;
    GN_ASSIGN(const Header h, check_header(blob, mutation));
    Reader reader(blob.subspan(sizeof(Header)));
    state.term = h.term;
    state.newest_slot = h.newest_slot;
    state.newest_map = reader.get<placement::ArrayMap>();
    if (state.newest_map.slot_count > placement::kMaxSlots)
        return error(Errc::kCorrupt, "drive metadata holds a map of {} slots; the store is damaged",
                     state.newest_map.slot_count);
    for (std::uint32_t i = 0; i < h.volumes; ++i) {
        const auto item = reader.get<VolumeItem>();
        const auto status = state.permissions.add(item.record, max_volumes, mdts_blocks);
        if (!nvme::ok(status))
            return error(Errc::kCorrupt,
                         "drive metadata holds volume {}, which this program refuses ({}); was the metadata "
                         "written by a newer program, or with other limits?",
                         item.record.geometry.volume, nvme::status_name(status));
        state.permissions.find(item.record.geometry.volume)->floor = item.floor;
    }
    for (std::uint32_t i = 0; i < h.deleted; ++i) {
        const auto item = reader.get<DeletedItem>();
        state.permissions.set_deleted(static_cast<nvme::VolumeId>(item.volume), item.last_epoch);
    }
    for (std::uint32_t i = 0; i < h.retired; ++i) {
        const auto unit = reader.get<std::uint32_t>();
        if (unit >= units)
            return error(Errc::kCorrupt,
                         "drive metadata lists the retired erase unit {}, but the drive has {} units; the "
                         "store is damaged",
                         unit, units);
        state.retired_units.push_back(unit);
    }
    return state;
}

}  // namespace gnstor::deengine
