// overlaid_port.hpp: an SSD as the daemon sees it while a test gives the SSDs other maps behind the daemon's back. Commands
// that carry the map's version are then answered as by older firmware, which the daemon does not wait for.
#pragma once

#include "daemon/decisions/ssd_port.hpp"

#include <atomic>

namespace gnstor::test {

class OverlaidPort final : public daemon::SsdPort {
  public:
    /// Both must outlive it.
    OverlaidPort(daemon::SsdPort& below, const std::atomic<bool>& overlaid)
        : below_(below), overlaid_(overlaid) {}

    std::uint32_t slot() const override { return below_.slot(); }
    daemon::SsdIdentity identity() const override { return below_.identity(); }
    bool is_new() const override { return below_.is_new(); }
    bool is_disconnected() const override { return below_.is_disconnected(); }
    bool keeps_terms() const override { return below_.keeps_terms(); }
    Result<daemon::SsdVolumes> volume_list(std::uint64_t term) override { return below_.volume_list(term); }
    Result<void> volume_add(std::uint64_t term, const nvme::VolumeRecord& record) override {
        return below_.volume_add(term, record);
    }
    Result<void> volume_chmod(std::uint64_t term, const nvme::VolumeRecord& record) override {
        return below_.volume_chmod(term, record);
    }
    Result<void> volume_remove(std::uint64_t term, nvme::VolumeId volume) override {
        return below_.volume_remove(term, volume);
    }
    Result<std::uint32_t> grant_ask(std::uint64_t term) override { return below_.grant_ask(term); }
    Result<void> map_set(std::uint64_t term, const nvme::MapSet& map, std::uint32_t nonce) override {
        return below_.map_set(term, map, nonce);
    }
    nvme::Status copy(const nvme::Command& command, std::span<std::byte> data, std::uint32_t& dw0) override {
        return overlaid_.load() ? nvme::Status::kInvalidOpcode : below_.copy(command, data, dw0);
    }
    const nvmf::auth::DhchapKey* node_key() const override { return below_.node_key(); }
    Result<void> hosts_set(std::uint64_t term, std::uint64_t version,
                           std::span<const nvme::HostSetEntry> hosts) override {
        return below_.hosts_set(term, version, hosts);
    }

  private:
    daemon::SsdPort& below_;
    const std::atomic<bool>& overlaid_;
};

}  // namespace gnstor::test
