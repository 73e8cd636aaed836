#include "nvmf/host/discover.hpp"

#include <gnstor/base/uuid.hpp>
#include <gnstor/nvme/discovery.hpp>

#include "nvmf/host/host.hpp"
#include "nvmf/protocol/nqn.hpp"

#include <algorithm>
#include <cstring>

namespace gnstor::nvmf {
namespace {

constexpr std::uint64_t kRecordsMost = 1024;
constexpr int kTries = 4;  // attempts to read a log that changes meanwhile

std::string unpadded(const char* field, std::size_t bytes) {
    std::string text(field, ::strnlen(field, bytes));
    while (!text.empty() && text.back() == ' ') text.pop_back();
    return text;
}

/// Text shown to users must contain no control characters, which a terminal would obey.
bool is_text(const std::string& text) {
    return std::none_of(text.begin(), text.end(), [](char c) {
        const auto byte = static_cast<unsigned char>(c);
        return byte < 0x20 || byte == 0x7F;
    });
}

/// Reads `bytes` of the log from its beginning, in pieces of 4 KiB.
Result<std::vector<std::byte>> read_log(HostController& host, std::uint64_t bytes) {
    std::vector<std::byte> page(bytes);
    for (std::uint64_t at = 0; at < bytes;) {
        const auto piece = static_cast<std::uint32_t>(std::min<std::uint64_t>(4096, bytes - at));
        nvme::Command command{};
        command.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::kGetLogPage);
        command.flags = nvme::kFlagsSgl;
        const std::uint32_t dwords = piece / 4 - 1;
        command.cdw10 = nvme::kLogPageDiscovery | ((dwords & 0xFFFFu) << 16);
        command.cdw11 = dwords >> 16;
        command.cdw12 = static_cast<std::uint32_t>(at);
        command.cdw13 = static_cast<std::uint32_t>(at >> 32);
        GN_TRY(host.admin_checked("Get Log Page (discovery)", command, std::span(page).subspan(at, piece),
                                  Direction::kToHost));
        at += piece;
    }
    return page;
}

std::uint64_t generation_of(std::span<const std::byte> page) {
    nvme::DiscoveryLogHeader header;
    std::memcpy(&header, page.data(), sizeof header);
    return header.generation;
}

}  // namespace

Result<std::vector<DiscoveredSubsystem>> read_discovery_log(std::span<const std::byte> page,
                                                            const std::string& peer) {
    nvme::DiscoveryLogHeader header;
    if (page.size() < sizeof header)
        return error(Errc::kCorrupt, "the discovery log of {} is shorter than its header", peer);
    std::memcpy(&header, page.data(), sizeof header);
    if (header.record_format != 0 ||
        header.records > (page.size() - sizeof header) / sizeof(nvme::DiscoveryEntry))
        return error(
            Errc::kCorrupt,
            "the discovery log of {} is damaged: its header claims {} records of format {} in {} bytes", peer,
            header.records, header.record_format, page.size());
    std::vector<DiscoveredSubsystem> found;
    for (std::uint64_t i = 0; i < header.records; ++i) {
        nvme::DiscoveryEntry entry;
        std::memcpy(&entry, page.data() + sizeof header + i * sizeof entry, sizeof entry);
        if (entry.transport != static_cast<std::uint8_t>(nvme::TransportType::kRdma) ||
            entry.subtype != static_cast<std::uint8_t>(nvme::SubsystemType::kNvm))
            continue;
        const auto nqn = nqn_in_field(std::span<const char, kNqnFieldBytes>(entry.subsystem_nqn));
        if (!nqn)
            return error(Errc::kCorrupt, "record {} of the discovery log of {} has a malformed NQN", i, peer);
        DiscoveredSubsystem one{std::string(*nqn), unpadded(entry.address, sizeof entry.address),
                                unpadded(entry.service, sizeof entry.service)};
        if (!is_text(one.address) || !is_text(one.service))
            return error(Errc::kCorrupt,
                         "record {} of the discovery log of {} has control characters in its address", i,
                         peer);
        found.push_back(std::move(one));
    }
    return found;
}

Result<std::vector<DiscoveredSubsystem>> discover(rdma::Nic& nic, const std::string& address,
                                                  const std::string& service, std::uint32_t timeout_ms) {
    HostOptions options;
    options.peer_address = address;
    options.service = service;
    options.subsystem_nqn = std::string(kDiscoveryNqn);
    options.host_nqn = std::string(kAdminHostNqn);
    const Uuid id = Uuid::random();
    std::memcpy(options.host_id.data(), id.bytes.data(), options.host_id.size());
    options.keep_alive_ms = 0;
    options.timeout_ms = timeout_ms;
    options.discovery = true;
    GN_ASSIGN(const std::unique_ptr<HostController> host, HostController::connect(nic, options));
    for (int i = 0; i < kTries; ++i) {
        GN_ASSIGN(const std::vector<std::byte> head, read_log(*host, sizeof(nvme::DiscoveryLogHeader)));
        nvme::DiscoveryLogHeader header;
        std::memcpy(&header, head.data(), sizeof header);
        if (header.records > kRecordsMost)
            return error(Errc::kCorrupt,
                         "the discovery log of {} claims {} records; this program accepts at most {}",
                         address, header.records, kRecordsMost);
        GN_ASSIGN(const std::vector<std::byte> page,
                  read_log(*host, sizeof header + header.records * sizeof(nvme::DiscoveryEntry)));
        if (generation_of(page) == header.generation) return read_discovery_log(page, address);
    }
    return error(Errc::kBusy,
                 "the discovery log of {} changed during every attempt to read it; try again later", address);
}

}  // namespace gnstor::nvmf
