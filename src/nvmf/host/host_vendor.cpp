// host_vendor.cpp: sends GNStor's vendor commands. Their contents: nvme/vendor.hpp.
#include "nvmf/host/host.hpp"

#include <cstring>

namespace gnstor::nvmf {

Result<void> HostController::vendor(const char* what, nvme::AdminOpcode opcode, std::uint64_t term,
                                    std::span<std::byte> data, Direction direction, std::uint32_t cdw10,
                                    std::uint32_t cdw11) {
    nvme::Command command{};
    command.opcode = static_cast<std::uint8_t>(opcode);
    command.flags = nvme::kFlagsSgl;
    command.cdw10 = cdw10;
    command.cdw11 = cdw11;
    command.cdw14 = static_cast<std::uint32_t>(term);
    command.cdw15 = static_cast<std::uint32_t>(term >> 32);
    GN_TRY(admin_checked(what, command, data, direction));
    return {};
}

Result<void> HostController::volume_add(std::uint64_t term, const nvme::VolumeRecord& record) {
    nvme::VolumeRecord copy = record;
    return vendor("VOLUME ADD", nvme::AdminOpcode::kVolumeAdd, term, bytes_of(copy), Direction::kToDrive);
}

Result<void> HostController::volume_chmod(std::uint64_t term, const nvme::VolumeRecord& record) {
    nvme::VolumeRecord copy = record;
    return vendor("VOLUME CHMOD", nvme::AdminOpcode::kVolumeChmod, term, bytes_of(copy), Direction::kToDrive);
}

Result<void> HostController::volume_delete(std::uint64_t term, nvme::VolumeId volume) {
    return vendor("VOLUME DELETE", nvme::AdminOpcode::kVolumeDelete, term, {}, Direction::kNone, volume);
}

Result<VolumeList> HostController::volume_list(std::uint64_t term) {
    constexpr std::size_t kBatch =
        (kAdminDataBytes - sizeof(nvme::VolumeListHeader)) / sizeof(nvme::VolumeRecord);
    constexpr std::size_t kBytes = sizeof(nvme::VolumeListHeader) + kBatch * sizeof(nvme::VolumeRecord);
    std::vector<std::byte> buffer(kBytes);
    VolumeList list;
    for (std::uint32_t first = 0;;) {
        GN_TRY(vendor("VOLUME LIST", nvme::AdminOpcode::kVolumeList, term, buffer, Direction::kToHost, first,
                      static_cast<std::uint32_t>(buffer.size())));
        nvme::VolumeListHeader header;
        std::memcpy(&header, buffer.data(), sizeof header);
        header.returned &= ~nvme::kListIncomplete;
        if (header.returned > kBatch)
            return error(Errc::kCorrupt, "{} returned {} volumes, but the buffer has room for {}",
                         options_.subsystem_nqn, header.returned, kBatch);
        list.term = header.term;
        for (std::uint32_t i = 0; i < header.returned; ++i) {
            nvme::VolumeRecord record;
            std::memcpy(&record, buffer.data() + sizeof header + std::size_t{i} * sizeof record,
                        sizeof record);
            list.records.push_back(record);
        }
        first += header.returned;
        if (header.returned == 0 || first >= header.total) return list;
    }
}

Result<void> HostController::map_set(std::uint64_t term, const nvme::MapSet& map) {
    nvme::MapSet copy = map;
    return vendor("MAP SET", nvme::AdminOpcode::kMapSet, term, bytes_of(copy), Direction::kToDrive);
}

}  // namespace gnstor::nvmf
