// nvmf_ssd_port.hpp: the daemon's connection to a drive: an NVMe-oF host on the drive's admin queue, as the
// array's admin host. One call at a time (SsdPort's rule); the host's deadline bounds every call. Reconnects
// when the association is lost, unless the drive's node is known to be down.
#pragma once

#include <gnstor/nvme/counters_log.hpp>

#include "daemon/decisions/inspector.hpp"
#include "daemon/decisions/ssd_port.hpp"
#include "nvmf/auth/dhchap_key.hpp"
#include "nvmf/host/host.hpp"

#include <functional>
#include <memory>
#include <span>

namespace gnstor::daemon {

struct NvmfSsdPortOptions {
    std::uint32_t timeout_ms = 10'000;  ///< for connecting, and for each command
    /// Result of the node's health check; false: commands fail at once. Empty: always tried.
    std::function<bool()> reachable;
    /// The key of the drive's node, which then must authenticate, and prove that it has it. Null: none.
    std::shared_ptr<const nvmf::auth::DhchapKey> node_key{};
};

class NvmfSsdPort final : public SsdPort {
  public:
    /// `nic` must outlive the port.
    static Result<std::unique_ptr<NvmfSsdPort>> connect(rdma::Nic& nic, std::uint32_t slot,
                                                        const SsdIdentity& identity,
                                                        NvmfSsdPortOptions options = {});
    /// Connects when first needed: for an SSD that is known from an earlier start and may be away.
    static std::unique_ptr<NvmfSsdPort> later(rdma::Nic& nic, std::uint32_t slot, const SsdIdentity& identity,
                                              NvmfSsdPortOptions options);
    /// Asks an SSD for its UUID, serial number and capacity (Identify). `where`: its address, service and
    /// NQN.
    static Result<SsdIdentity> identify(rdma::Nic& nic, SsdIdentity where, const NvmfSsdPortOptions& options);

    [[nodiscard]] std::uint32_t slot() const override { return slot_; }
    [[nodiscard]] SsdIdentity identity() const override { return identity_; }
    [[nodiscard]] bool is_new() const override { return is_new_; }
    [[nodiscard]] bool keeps_terms() const override { return keeps_terms_; }
    [[nodiscard]] bool is_disconnected() const override { return host_ != nullptr && !host_->connected(); }
    Result<SsdVolumes> volume_list(std::uint64_t term) override;
    Result<void> volume_add(std::uint64_t term, const nvme::VolumeRecord& record) override;
    Result<void> volume_chmod(std::uint64_t term, const nvme::VolumeRecord& record) override;
    Result<void> volume_remove(std::uint64_t term, nvme::VolumeId volume) override;
    Result<std::uint32_t> grant_ask(std::uint64_t term) override;
    Result<void> map_set(std::uint64_t term, const nvme::MapSet& map, std::uint32_t nonce) override;
    [[nodiscard]] const nvmf::auth::DhchapKey* node_key() const override { return options_.node_key.get(); }
    Result<void> hosts_set(std::uint64_t term, std::uint64_t version,
                           std::span<const nvme::HostSetEntry> hosts) override;
    nvme::Status copy(const nvme::Command& command, std::span<std::byte> data, std::uint32_t& dw0) override;
    /// Counters of the SSD and of the target in front of it.
    Result<nvme::SsdCountersLog> counters();
    /// Version of the program that serves it (FR), read when it connected; empty: not connected now.
    [[nodiscard]] std::string firmware() const;

  private:
    NvmfSsdPort(rdma::Nic& nic, std::uint32_t slot, SsdIdentity identity, NvmfSsdPortOptions options)
        : nic_(nic), slot_(slot), identity_(std::move(identity)), options_(std::move(options)) {}
    Result<void> ensure_connected();
    Result<placement::ArrayMap> newest_map(bool& known);
    Result<void> send_hosts(std::uint64_t term, std::uint64_t version,
                            std::span<const nvme::HostSetEntry> hosts);
    /// Sends one vendor command; returns DW0. A refusal becomes ssd_error(), so that the caller can tell
    /// which it was.
    Result<std::uint32_t> send(const char* what, nvme::AdminOpcode opcode, std::uint64_t term,
                               std::span<std::byte> data, nvmf::Direction direction, std::uint32_t cdw10,
                               std::uint32_t cdw11);

    rdma::Nic& nic_;
    const std::uint32_t slot_;
    const SsdIdentity identity_;
    const NvmfSsdPortOptions options_;
    std::unique_ptr<nvmf::HostController> host_;
    std::string firmware_;      ///< as read on the present connection
    bool keeps_terms_ = false;  ///< as Identify said on the present connection
    bool busy_ = false;         ///< the last command that was answered was answered Busy
    bool is_new_ = true;        ///< connected since the last complete volume_list(), or never
};

/// Use and spare are unknown of a log of version 1. Pure.
[[nodiscard]] SsdReadings readings_from(const nvme::SsdCountersLog& log);
/// For InProcessOptions::ssd_readings: asks the port with this SSD's UUID; empty if it does not answer.
/// SsdPort's rule of one call at a time applies.
[[nodiscard]] SsdReadings readings_of(std::span<const std::unique_ptr<NvmfSsdPort>> ports,
                                      const SsdInfo& ssd);
/// For SsdInfo::firmware; the same rule applies.
[[nodiscard]] std::string firmware_of(std::span<const std::unique_ptr<NvmfSsdPort>> ports,
                                      const SsdInfo& ssd);

}  // namespace gnstor::daemon
