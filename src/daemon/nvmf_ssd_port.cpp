// nvmf_ssd_port.cpp: vendor commands to one drive, over its admin queue.
#include "daemon/nvmf_ssd_port.hpp"

#include "nvmf/nqn.hpp"

#include <cstring>
#include <utility>

namespace gnstor::daemon {
namespace {

constexpr std::size_t kListBatch = 128;

/// The daemon's host id: fixed, so that all its queues belong to one host.
nvmf::HostId admin_host_id() {
    nvmf::HostId id{};
    constexpr char kName[] = "gnstord-admin-00";
    static_assert(sizeof kName == 17, "a host id has 16 bytes");
    std::memcpy(id.data(), kName, id.size());
    return id;
}

template <class T>
std::span<std::byte> bytes_of(T& value) {
    return std::as_writable_bytes(std::span<T, 1>(&value, 1));
}

}  // namespace

Result<std::unique_ptr<NvmfSsdPort>> NvmfSsdPort::connect(rdma::SoftNic& nic, std::uint32_t slot,
                                                          const SsdIdentity& identity) {
    std::unique_ptr<NvmfSsdPort> port(new NvmfSsdPort(nic, slot, identity));
    GN_TRY(port->ensure_connected());
    return port;
}

Result<void> NvmfSsdPort::ensure_connected() {
    if (host_ && host_->connected()) return {};
    host_.reset();
    nvmf::HostOptions options;
    options.peer_address = identity_.nic_address;
    options.service = identity_.service;
    options.subsystem_nqn = identity_.subsystem_nqn;
    options.host_nqn = std::string(nvmf::kAdminHostNqn);
    options.host_id = admin_host_id();
    options.keep_alive_ms =
        0;  // a daemon that is suspended keeps its association; its term protects the drives
    options.io_queues = 1;
    GN_ASSIGN(host_, nvmf::HostController::connect(nic_, options));
    return {};
}

Result<std::uint32_t> NvmfSsdPort::send(const char* what, nvme::AdminOpcode opcode, std::uint64_t term,
                                        std::span<std::byte> data, nvmf::Direction direction,
                                        std::uint32_t cdw10, std::uint32_t cdw11) {
    GN_TRY(ensure_connected());
    nvme::Command command{};
    command.opcode = static_cast<std::uint8_t>(opcode);
    command.flags = nvme::kFlagsSgl;
    command.cdw10 = cdw10;
    command.cdw11 = cdw11;
    command.cdw14 = static_cast<std::uint32_t>(term);
    command.cdw15 = static_cast<std::uint32_t>(term >> 32);
    GN_ASSIGN(const nvme::Completion completion, host_->admin(command, data, direction));
    if (nvme::ok(completion.result())) return completion.dw0;
    return ssd_error(completion.result(), what, identity_.subsystem_nqn);
}

Result<SsdVolumes> NvmfSsdPort::volume_list(std::uint64_t term) {
    std::vector<std::byte> buffer(sizeof(nvme::VolumeListHeader) + kListBatch * sizeof(nvme::VolumeRecord));
    SsdVolumes list;
    for (std::uint32_t first = 0;;) {
        GN_ASSIGN(list.highest_deleted_epoch,
                  send("VOLUME LIST", nvme::AdminOpcode::kVolumeList, term, buffer, nvmf::Direction::kToHost,
                       first, static_cast<std::uint32_t>(buffer.size())));
        nvme::VolumeListHeader header;
        std::memcpy(&header, buffer.data(), sizeof header);
        if (header.returned > kListBatch)
            return error(Errc::kCorrupt, "{} lists {} volumes in room for {}", identity_.subsystem_nqn,
                         header.returned, kListBatch);
        list.term = header.term;
        for (std::uint32_t i = 0; i < header.returned; ++i)
            std::memcpy(&list.records.emplace_back(),
                        buffer.data() + sizeof header + i * sizeof(nvme::VolumeRecord),
                        sizeof(nvme::VolumeRecord));
        first += header.returned;
        if (header.returned == 0 || first >= header.total) return list;
    }
}

Result<void> NvmfSsdPort::volume_add(std::uint64_t term, const nvme::VolumeRecord& record) {
    nvme::VolumeRecord copy = record;
    GN_TRY(send("VOLUME ADD", nvme::AdminOpcode::kVolumeAdd, term, bytes_of(copy), nvmf::Direction::kToDrive,
                0, 0));
    return {};
}

Result<void> NvmfSsdPort::volume_chmod(std::uint64_t term, const nvme::VolumeRecord& record) {
    nvme::VolumeRecord copy = record;
    GN_TRY(send("VOLUME CHMOD", nvme::AdminOpcode::kVolumeChmod, term, bytes_of(copy),
                nvmf::Direction::kToDrive, 0, 0));
    return {};
}

Result<void> NvmfSsdPort::volume_remove(std::uint64_t term, nvme::VolumeId volume) {
    GN_TRY(
        send("VOLUME DELETE", nvme::AdminOpcode::kVolumeDelete, term, {}, nvmf::Direction::kNone, volume, 0));
    return {};
}

Result<void> NvmfSsdPort::map_set(std::uint64_t term, const nvme::MapSet& map) {
    nvme::MapSet copy = map;
    GN_TRY(
        send("MAP SET", nvme::AdminOpcode::kMapSet, term, bytes_of(copy), nvmf::Direction::kToDrive, 0, 0));
    return {};
}

}  // namespace gnstor::daemon
