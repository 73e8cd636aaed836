// nvmf_ssd_port.hpp: the daemon's way to a drive: an NVMe-oF host like any other, on the drive's admin queue,
// as the array's admin host. One call at a time (SsdPort's rule); every call is bounded by the host's
// deadline. Reconnects when the association is gone, as long as its node is said to be there.
#pragma once

#include <gnstor/nvme/counters_log.hpp>

#include "daemon/decisions/inspector.hpp"
#include "daemon/decisions/ssd_port.hpp"
#include "nvmf/host/host.hpp"

#include <functional>
#include <memory>
#include <span>

namespace gnstor::daemon {

struct NvmfSsdPortOptions {
    std::uint32_t timeout_ms = 10'000;  ///< of connecting, and of each command
    /// Whether its node answers, as far as somebody knows who asks it all the time: commands to one that does
    /// not are not tried. Empty: always tried.
    std::function<bool()> reachable;
};

class NvmfSsdPort final : public SsdPort {
  public:
    /// `nic` must outlive the port.
    static Result<std::unique_ptr<NvmfSsdPort>> connect(rdma::SoftNic& nic, std::uint32_t slot,
                                                        const SsdIdentity& identity,
                                                        NvmfSsdPortOptions options = {});
    /// Connects when it is needed first: to an SSD that is known from earlier and may be away.
    static std::unique_ptr<NvmfSsdPort> later(rdma::SoftNic& nic, std::uint32_t slot,
                                              const SsdIdentity& identity, NvmfSsdPortOptions options);
    /// What an SSD says of itself (Identify): UUID, serial number, capacity. Address, service and NQN of
    /// `where` say which.
    static Result<SsdIdentity> identify(rdma::SoftNic& nic, SsdIdentity where, std::uint32_t timeout_ms);

    [[nodiscard]] std::uint32_t slot() const override { return slot_; }
    [[nodiscard]] SsdIdentity identity() const override { return identity_; }
    [[nodiscard]] bool is_new() const override { return is_new_; }
    [[nodiscard]] bool keeps_terms() const override { return keeps_terms_; }
    Result<SsdVolumes> volume_list(std::uint64_t term) override;
    Result<void> volume_add(std::uint64_t term, const nvme::VolumeRecord& record) override;
    Result<void> volume_chmod(std::uint64_t term, const nvme::VolumeRecord& record) override;
    Result<void> volume_remove(std::uint64_t term, nvme::VolumeId volume) override;
    Result<std::uint32_t> grant_ask(std::uint64_t term) override;
    Result<void> map_set(std::uint64_t term, const nvme::MapSet& map, std::uint32_t nonce) override;
    /// What the SSD and the target in front of it count.
    Result<nvme::SsdCountersLog> counters();
    /// Version of the program that serves it (FR), asked when it was connected; empty: there is no
    /// connection now.
    [[nodiscard]] std::string firmware() const;

  private:
    NvmfSsdPort(rdma::SoftNic& nic, std::uint32_t slot, SsdIdentity identity, NvmfSsdPortOptions options)
        : nic_(nic), slot_(slot), identity_(std::move(identity)), options_(std::move(options)) {}
    Result<void> ensure_connected();
    /// One vendor command: its DW0. A refusal becomes ssd_error, so that the decisions see which it was.
    Result<std::uint32_t> send(const char* what, nvme::AdminOpcode opcode, std::uint64_t term,
                               std::span<std::byte> data, nvmf::Direction direction, std::uint32_t cdw10,
                               std::uint32_t cdw11);

    rdma::SoftNic& nic_;
    const std::uint32_t slot_;
    const SsdIdentity identity_;
    const NvmfSsdPortOptions options_;
    std::unique_ptr<nvmf::HostController> host_;
    std::string firmware_;      ///< of that connection
    bool keeps_terms_ = false;  ///< as Identify said on that connection
    bool is_new_ = true;        ///< that connection is, or there was none yet
};

/// For SsdInfo::counters: of the port that has this SSD, as it says now; empty where it does not answer.
/// Under the rule of one call at a time.
[[nodiscard]] SsdCounters counters_of(std::span<const std::unique_ptr<NvmfSsdPort>> ports,
                                      const SsdInfo& ssd);
/// For SsdInfo::firmware, by the same rule.
[[nodiscard]] std::string firmware_of(std::span<const std::unique_ptr<NvmfSsdPort>> ports,
                                      const SsdInfo& ssd);

}  // namespace gnstor::daemon
