// record_reader.hpp: records of one size in a volume, read by a list of indices. Take it into a program of
// your own.
//
// Record i lies at byte i * bytes. Records of 512 to 4096 bytes (powers of two) lie within a block, of which
// just their sectors are read; larger ones are multiples of 4096. The view is trivially copyable: kernels
// take it by value. All lanes of `group` call with the same arguments.
#pragma once

#include <gnstor/gnor/volume_ref.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

class RecordReader {
  public:
    static constexpr std::uint32_t kBlockBytes = 4096, kSectorBytes = 512;

    gnstor::VolumeRef volume;
    std::uint32_t bytes = 0;    ///< of a record
    std::uint64_t records = 0;  ///< in the volume

    [[nodiscard]] static constexpr bool takes(std::uint32_t bytes) {
        if (bytes >= kBlockBytes) return bytes % kBlockBytes == 0;
        return bytes >= kSectorBytes && (bytes & (bytes - 1)) == 0;
    }

    /// Reads record indices[k] to `to` + k * bytes, for each k below `count`, all at once. `to` is registered
    /// memory (Client::map_buffer). `requests`: room for `count`, which all lanes reach, as `indices` is: not
    /// on a lane's stack. The worst status; kLbaOutOfRange, and nothing is read, where an index is no
    /// record's.
    template <class Group, gnstor::ChannelView Channel>
    GN_HD gnstor::nvme::Status read(Group group, Channel channel, const std::uint64_t* indices,
                                    std::uint32_t count, std::byte* to, gnstor::IoRequest* requests,
                                    gnstor::Deadline deadline) const {
        bool inside = true;
        for (std::uint32_t k = group.rank(); k < count; k += group.size()) {
            inside = inside && indices[k] < records;
            requests[k] = request(indices[k], to + std::size_t{k} * bytes);
        }
        // Also orders the requests of all lanes before any lane reads them.
        const bool all_inside = group.all(inside);
        group.sync();
        if (!all_inside) return gnstor::nvme::Status::kLbaOutOfRange;
        return volume.read_many(group, channel, requests, count, nullptr, deadline);
    }

  private:
    GN_HD gnstor::IoRequest request(std::uint64_t index, std::byte* to) const {
        const std::uint64_t at = index * bytes;
        gnstor::IoRequest one;
        one.block = static_cast<gnstor::nvme::BlockAddress>(at / kBlockBytes);
        one.buffer = to;
        if (bytes >= kBlockBytes) {
            one.blocks = bytes / kBlockBytes;
        } else {
            one.blocks = 1;
            one.first_sector = static_cast<std::uint8_t>(at % kBlockBytes / kSectorBytes);
            one.sectors = static_cast<std::uint8_t>(bytes / kSectorBytes);
        }
        return one;
    }
};
static_assert(std::is_trivially_copyable_v<RecordReader>, "kernels take it by value");
