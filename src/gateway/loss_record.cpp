#include "gateway/loss_record.hpp"

#include <gnstor/base/crc32c.hpp>

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace gnstor::gateway {

namespace {

constexpr std::array<char, 8> kMagic{'G', 'N', 'L', 'O', 'S', 'S', 'R', 'C'};
constexpr std::uint32_t kFormat = 1;

/// Layout of the file; little endian.
struct Image {
    std::array<char, 8> magic;
    std::uint32_t format;
    std::uint32_t crc;  ///< CRC-32C of the record's bytes after this field
    std::array<std::uint8_t, 16> volume;
    std::uint64_t gone;
    std::uint8_t dirty, lost, told, reserved;
    std::uint32_t fewest;
    placement::ArrayMap map;
};
static_assert(std::is_trivially_copyable_v<Image> && sizeof(Image) <= kLossRecordBytes);
static_assert(offsetof(Image, volume) == 16 && offsetof(Image, map) == 48, "no padding");
constexpr std::size_t kChecked = offsetof(Image, volume);

}  // namespace

LossRecordBytes encode_loss_record(const LossRecord& record) {
    Image image{};
    image.magic = kMagic;
    image.format = kFormat;
    image.volume = record.volume;
    image.gone = record.gone;
    image.fewest = record.fewest;
    image.dirty = record.dirty;
    image.lost = record.lost;
    image.told = record.told;
    image.map = record.map;
    LossRecordBytes bytes{};
    std::memcpy(bytes.data(), &image, sizeof image);
    image.crc = crc32c(bytes.data() + kChecked, bytes.size() - kChecked);
    std::memcpy(bytes.data(), &image, sizeof image);
    return bytes;
}

Result<LossRecord> decode_loss_record(std::span<const std::byte> bytes) {
    Image image{};
    if (bytes.size() != kLossRecordBytes)
        return error(Errc::kCorrupt, "it has {} bytes, not {}", bytes.size(), kLossRecordBytes);
    std::memcpy(&image, bytes.data(), sizeof image);
    if (image.magic != kMagic) return error(Errc::kCorrupt, "its first bytes are not those of such a record");
    if (image.format != kFormat)
        return error(Errc::kUnsupported, "it has format {}, this program knows {}", image.format, kFormat);
    if (image.crc != crc32c(bytes.data() + kChecked, bytes.size() - kChecked))
        return error(Errc::kCorrupt, "its checksum does not match");
    const bool flags = image.dirty <= 1 && image.lost <= 1 && image.told <= 1;
    const bool slots =
        image.map.slot_count <= placement::kMaxSlots &&
        std::all_of(std::begin(image.map.slots), std::end(image.map.slots),
                    [](const placement::Slot& s) { return s.state <= placement::kLastSlotState; });
    if (!flags || !slots) return error(Errc::kCorrupt, "it holds flags or slot states out of range");
    LossRecord record;
    record.volume = image.volume;
    record.map = image.map;
    record.gone = image.gone;
    record.fewest = image.fewest;
    record.dirty = image.dirty != 0;
    record.lost = image.lost != 0;
    record.told = image.told != 0;
    return record;
}

bool same(const LossRecord& a, const LossRecord& b) {
    return encode_loss_record(a) == encode_loss_record(b);
}

}  // namespace gnstor::gateway
