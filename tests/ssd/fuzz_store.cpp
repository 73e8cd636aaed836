// Fuzzer: any bytes as a store file are refused or opened, never a crash. Half of the inputs get a right
// checksum and length, so that what lies behind those checks is reached.
#include <gnstor/base/crc32c.hpp>

#include "mutate_store.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

using namespace gnstor;
using namespace gnstor::ssd;

namespace {

/// A right boot record of this copy; bytes 124 to 127 of the input (where there are so many) say how it was
/// left and which of its bytes is off.
void put_boot_record(std::vector<std::uint8_t>& image, std::uint32_t copy,
                     const std::vector<std::uint8_t>& input, DriveSeed drive) {
    BootRecord r = new_boot_record();
    r.generation = 1 + copy;
    if (input.size() >= 128) {
        r.mode = static_cast<BootMode>(input[124]);
        r.state = static_cast<BootState>(input[125]);
    }
    r.crc = boot_record_crc(r, drive);
    if (input.size() >= 128 && (input[126] & (1u << copy)) != 0)
        reinterpret_cast<std::uint8_t*>(&r)[input[127]] ^= 1;
    std::memcpy(image.data() + kBootOffset + copy * sizeof r, &r, sizeof r);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const std::uint8_t mode = data[0];
    std::vector<std::uint8_t> bytes(data + 1, data + size);
    if ((mode & 1) != 0) {
        // A superblock of a small geometry, under the input's bytes.
        const deengine::FlashGeometry g{1u + (mode >> 1) % 4u, 1u + (mode >> 3) % 8u, 2, 1};
        const StoreLayout layout = StoreLayout::of(g, kStorePage);
        Superblock s{};
        std::copy(kStoreMagic.begin(), kStoreMagic.end(), s.magic);
        s.format_version = kStoreFormatVersion;
        s.page_bytes = nvme::kBlockBytes;
        s.units = g.units;
        s.pages_per_unit = g.pages_per_unit;
        s.oob_bytes = sizeof(deengine::PageOob);
        s.channels = g.channels;
        s.dies_per_channel = g.dies_per_channel;
        s.service_units = 1;
        s.metadata_bytes = kStorePage;
        s.metadata_offset = layout.metadata_offset;
        s.oob_offset = layout.oob_offset;
        s.data_offset = layout.data_offset;
        s.file_bytes = layout.file_bytes;
        auto* raw = reinterpret_cast<std::uint8_t*>(&s);
        const std::size_t patched = std::min<std::size_t>(bytes.size(), 124);
        if ((mode & 0x80) != 0) {
            for (std::size_t i = 0; i < patched; ++i) raw[i] ^= bytes[i];
        }
        s.crc = crc32c(&s, offsetof(Superblock, crc));
        std::vector<std::uint8_t> image(layout.file_bytes, 0);
        std::memcpy(image.data(), &s, sizeof s);
        for (std::uint32_t copy = 0; copy < 2; ++copy) put_boot_record(image, copy, bytes, seed_of(s));
        for (std::size_t i = 0; i < bytes.size(); ++i) {
            const std::size_t at = kStoreHeadBytes + i * ((mode & 0x40) != 0 ? 64 : 1);
            if (at < image.size()) image[at] = bytes[i];
        }
        bytes.swap(image);
    }
    const int fd = ::memfd_create("store", MFD_CLOEXEC);
    if (fd < 0 || ::write(fd, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) std::abort();
    auto store = FileStore::open("/proc/self/fd/" + std::to_string(fd));
    ::close(fd);
    if (store.ok()) (void)ssd::testing::exercise(**store);
    return 0;
}
