#include "nvmf/target/discovery.hpp"

#include "nvmf/protocol/nqn.hpp"

#include <gnstor/nvme/fabrics.hpp>

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace gnstor::nvmf {

using nvme::AdminOpcode;
using nvme::Status;

namespace {

constexpr std::uint32_t kOffsetIsIndex = 1u << 23;  // OT, CDW14 of Get Log Page

/// Blank padded, as ASCII fields of NVMe are.
template <std::size_t N>
bool put_text(char (&field)[N], std::string_view text) {
    if (text.size() > N) return false;
    std::memset(field, ' ', N);
    std::memcpy(field, text.data(), text.size());
    return true;
}

nvme::AddressFamily family_of(const std::string& address) {
    in6_addr scratch{};
    if (::inet_pton(AF_INET, address.c_str(), &scratch) == 1) return nvme::AddressFamily::kIpv4;
    if (::inet_pton(AF_INET6, address.c_str(), &scratch) == 1) return nvme::AddressFamily::kIpv6;
    return nvme::AddressFamily::kIntraHost;  // a name on the loop wire
}

bool fill(nvme::DiscoveryEntry& entry, const DiscoveryRecord& record) {
    entry = {};
    entry.transport = static_cast<std::uint8_t>(nvme::TransportType::kRdma);
    entry.family = static_cast<std::uint8_t>(family_of(record.address));
    entry.subtype = static_cast<std::uint8_t>(nvme::SubsystemType::kNvm);
    entry.requirements = nvme::kTreqSecureNotRequired | nvme::kTreqSqFlowOptional;
    entry.port_id = record.port_id;
    entry.controller_id = nvme::kDynamicControllers;
    entry.admin_entries_max = record.admin_entries_max;
    entry.rdma.qp_type = nvme::kRdmaReliableConnected;
    entry.rdma.provider = nvme::kRdmaProviderRoceV2;
    entry.rdma.cm = nvme::kRdmaCm;
    return put_nqn(entry.subsystem_nqn, record.nqn) && put_text(entry.address, record.address) &&
           put_text(entry.service, record.service);
}

nvme::IdentifyController identify() {
    // The fabric's part (identity, sizes, SGLs) is filled in by Controllers::complete_identify.
    nvme::IdentifyController c{};
    std::memset(c.sn, ' ', sizeof c.sn);
    std::memset(c.fr, ' ', sizeof c.fr);
    (void)put_text(c.mn, "GNStor discovery");
    (void)put_text(c.fr, GN_VERSION);
    c.acl = 3;
    c.lpa = nvme::kLpaExtendedData;
    return c;
}

}  // namespace

Result<DiscoveryLog> DiscoveryLog::make(std::span<const DiscoveryRecord> records, std::uint64_t generation) {
    DiscoveryLog log;
    log.page_.resize(sizeof(nvme::DiscoveryLogHeader) + records.size() * sizeof(nvme::DiscoveryEntry));
    nvme::DiscoveryLogHeader header{};
    header.generation = generation;
    header.records = records.size();
    std::memcpy(log.page_.data(), &header, sizeof header);
    std::byte* to = log.page_.data() + sizeof header;
    for (const DiscoveryRecord& record : records) {
        nvme::DiscoveryEntry entry;
        if (!fill(entry, record))
            return error(Errc::kInvalidArgument,
                         "'{}' at '{}' port '{}' does not fit a discovery record: the NQN may have 223 "
                         "bytes, the address 256 and the port 32",
                         record.nqn, record.address, record.service);
        std::memcpy(to, &entry, sizeof entry);
        to += sizeof entry;
    }
    return log;
}

bool DiscoveryLog::read(std::uint64_t offset, std::span<std::byte> to) const {
    if (offset > page_.size()) return false;
    const std::size_t there = std::min<std::size_t>(to.size(), page_.size() - offset);
    std::memcpy(to.data(), page_.data() + offset, there);
    std::memset(to.data() + there, 0, to.size() - there);
    return true;
}

ssd::AdminReply DiscoveryCommands::handle(const nvme::Command& command, ssd::ControllerFeatures& features,
                                          std::span<std::byte> data) const {
    const bool events =
        (command.cdw10 & 0xFFu) == static_cast<std::uint32_t>(nvme::Feature::kAsyncEventConfiguration);
    switch (static_cast<AdminOpcode>(command.opcode)) {
        case AdminOpcode::kIdentify: {
            if ((command.cdw10 & 0xFFu) != static_cast<std::uint32_t>(nvme::IdentifyCns::kController))
                return {Status::kInvalidField};
            const nvme::IdentifyController c = identify();
            std::memcpy(data.data(), &c, std::min(data.size(), sizeof c));
            return {Status::kSuccess};
        }
        case AdminOpcode::kGetLogPage:
            return get_log_page(command, data);
        case AdminOpcode::kSetFeatures:
            if ((command.cdw10 & nvme::kFeatureSave) != 0) return {Status::kFeatureNotSaveable};
            if (!events) return {Status::kInvalidField};
            features.async_events = command.cdw11;
            return {Status::kSuccess};
        case AdminOpcode::kGetFeatures:
            if (!events) return {Status::kInvalidField};
            return {Status::kSuccess, features.async_events};
        case AdminOpcode::kKeepAlive:
            return {Status::kSuccess};  // Controllers has the timer
        default:
            return {Status::kInvalidOpcode};
    }
}

ssd::AdminReply DiscoveryCommands::get_log_page(const nvme::Command& command,
                                                std::span<std::byte> data) const {
    if ((command.cdw10 & 0xFFu) != nvme::kLogPageDiscovery) return {Status::kInvalidLogPage};
    const std::uint64_t offset = command.cdw12 | (std::uint64_t{command.cdw13} << 32);
    if (offset % 4 != 0 || (command.cdw14 & kOffsetIsIndex) != 0) return {Status::kInvalidField};
    return {log_.read(offset, data) ? Status::kSuccess : Status::kInvalidField};
}

}  // namespace gnstor::nvmf
