// fuzz_discovery.cpp: any bytes as a discovery log page, as an untrusted target may send it; then the same
// with a header and kinds of records that are right, so that their names and addresses are looked at.
#include "nvmf/host/discover.hpp"
#include "nvmf/protocol/nqn.hpp"

#include <gnstor/nvme/discovery.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>

using namespace gnstor;

namespace {
constexpr std::size_t kHeader = sizeof(nvme::DiscoveryLogHeader), kRecord = sizeof(nvme::DiscoveryEntry);

void require(bool holds) {
    if (!holds) std::abort();
}

/// Fit to be shown to people, and to be asked for.
bool is_text(const std::string& text, std::size_t most) {
    return text.size() <= most && std::none_of(text.begin(), text.end(), [](char c) {
               return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
           });
}

void check(std::span<const std::byte> page) {
    const auto found = nvmf::read_discovery_log(page, "peer");
    if (!found) return require(found.error().code == Errc::kCorrupt && is_text(found.error().message, 300));
    require(page.size() >= kHeader && found->size() <= (page.size() - kHeader) / kRecord);
    for (const nvmf::DiscoveredSubsystem& one : *found) {
        require(nvmf::is_valid_nqn(one.nqn));
        require(is_text(one.address, sizeof(nvme::DiscoveryEntry::address)));
        require(is_text(one.service, sizeof(nvme::DiscoveryEntry::service)));
    }
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    // A copy of the exact size: the sanitizer sees a read past the end.
    std::vector<std::byte> page(reinterpret_cast<const std::byte*>(data),
                                reinterpret_cast<const std::byte*>(data) + size);
    check(page);
    if (page.size() < kHeader) return 0;
    const std::uint64_t records = (page.size() - kHeader) / kRecord;
    std::memcpy(page.data() + offsetof(nvme::DiscoveryLogHeader, records), &records, sizeof records);
    std::memset(page.data() + offsetof(nvme::DiscoveryLogHeader, record_format), 0, 2);
    for (std::uint64_t i = 0; i < records; ++i) {
        std::byte* const record = page.data() + kHeader + i * kRecord;
        record[offsetof(nvme::DiscoveryEntry, transport)] =
            static_cast<std::byte>(nvme::TransportType::kRdma);
        record[offsetof(nvme::DiscoveryEntry, subtype)] = static_cast<std::byte>(nvme::SubsystemType::kNvm);
    }
    check(page);
    return 0;
}
