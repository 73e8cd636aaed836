// nvmf_ssd_port.hpp: the daemon's way to a drive: an NVMe-oF host like any other, on the drive's admin queue,
// as the array's admin host. One call at a time (SsdPort's rule); every call is bounded by the host's
// deadline. Reconnects when the association is gone.
#pragma once

#include "daemon/ssd_port.hpp"
#include "nvmf/host.hpp"

#include <memory>

namespace gnstor::daemon {

class NvmfSsdPort final : public SsdPort {
  public:
    /// `nic` must outlive the port.
    static Result<std::unique_ptr<NvmfSsdPort>> connect(rdma::SoftNic& nic, std::uint32_t slot,
                                                        const SsdIdentity& identity);

    [[nodiscard]] std::uint32_t slot() const override { return slot_; }
    [[nodiscard]] SsdIdentity identity() const override { return identity_; }
    Result<SsdVolumes> volume_list(std::uint64_t term) override;
    Result<void> volume_add(std::uint64_t term, const nvme::VolumeRecord& record) override;
    Result<void> volume_chmod(std::uint64_t term, const nvme::VolumeRecord& record) override;
    Result<void> volume_remove(std::uint64_t term, nvme::VolumeId volume) override;
    Result<void> map_set(std::uint64_t term, const nvme::MapSet& map) override;

  private:
    NvmfSsdPort(rdma::SoftNic& nic, std::uint32_t slot, SsdIdentity identity)
        : nic_(nic), slot_(slot), identity_(std::move(identity)) {}
    Result<void> ensure_connected();
    /// One vendor command: its DW0. A refusal becomes ssd_error, so that the decisions see which it was.
    Result<std::uint32_t> send(const char* what, nvme::AdminOpcode opcode, std::uint64_t term,
                               std::span<std::byte> data, nvmf::Direction direction, std::uint32_t cdw10,
                               std::uint32_t cdw11);

    rdma::SoftNic& nic_;
    const std::uint32_t slot_;
    const SsdIdentity identity_;
    std::unique_ptr<nvmf::HostController> host_;
};

}  // namespace gnstor::daemon
