// in_process.hpp: the daemon inside a process: a ControlPlane over a Manager with one mutex and a clock.
//
// All functions may be called from any thread. Drives are called with the mutex held, so one change runs at a
// time. Each call to a drive is bounded, and so is the wait for the mutex. The optional thread ends leases
// and retries pending changes. What changes becomes events (events.hpp): the array is looked at after each call
// that may change it, after each tick, and in each inspect().
#pragma once

#include <gnstor/client/control_plane.hpp>

#include "daemon/decisions/events.hpp"
#include "daemon/decisions/inspector.hpp"
#include "daemon/decisions/manager.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gnstor::daemon {

/// Milliseconds of a clock that includes suspended time and never goes back.
[[nodiscard]] std::uint64_t boottime_ms();
/// Milliseconds since 1970, by the system's clock, which may be set.
[[nodiscard]] std::uint64_t unix_ms();

struct InProcessOptions {
    ManagerOptions manager;
    std::function<std::uint64_t()> now_ms = boottime_ms;
    std::function<std::uint64_t()> wall_ms = unix_ms;  ///< the times of events
    std::chrono::milliseconds tick{1000};              ///< 0: no thread, the owner calls tick()
    /// Asks the drive in a slot; may be empty. Called with the mutex held.
    std::function<SsdReadings(const SsdInfo& ssd)> ssd_readings;
    /// Version of the program that serves a drive; may be empty. Called with the mutex held.
    std::function<std::string(const SsdInfo& ssd)> ssd_firmware;
};

class InProcessControlPlane final : public client::ControlPlane, public Inspector {
  public:
    /// Takes over the array (Manager::start); owns the store. `ports` must outlive it.
    static Result<std::unique_ptr<InProcessControlPlane>> start(std::unique_ptr<RecordStore> store,
                                                                std::vector<SsdPort*> ports,
                                                                InProcessOptions options);
    ~InProcessControlPlane() override;

    Result<client::ClientIdentity> register_client(const std::string& name) override;
    Result<client::ClientAccess> add_client(const std::string& name) override;
    Result<client::ClientAccess> rotate_client(const std::string& name) override;
    Result<void> remove_client(const std::string& name) override;
    Result<std::vector<client::SsdKeys>> ssd_keys(nvme::ClientId client) override;
    Result<client::ArrayView> array() override;
    Result<nvme::VolumeRecord> create_volume(nvme::ClientId client,
                                             const client::CreateVolume& request) override;
    Result<client::OpenedVolume> open_volume(nvme::ClientId client, const std::string& name,
                                             client::OpenMode mode) override;
    Result<std::uint64_t> renew_lease(nvme::ClientId client, nvme::VolumeId volume,
                                      nvme::Epoch epoch) override;
    Result<void> release_volume(nvme::ClientId client, nvme::VolumeId volume, nvme::Epoch epoch,
                                std::uint64_t byte_length) override;
    Result<void> share_volume(nvme::ClientId owner, const std::string& name, nvme::ClientId reader) override;
    Result<void> unshare_volume(nvme::ClientId owner, const std::string& name,
                                nvme::ClientId reader) override;
    Result<void> delete_volume(nvme::ClientId owner, const std::string& name) override;
    Result<std::vector<nvme::VolumeRecord>> list_volumes() override;
    ArrayInfo inspect() override;
    EventPage events_since(std::uint64_t number) override;
    std::optional<ClientInfo> client_of(nvme::ClientId client) override;
    /// Manager::check_none_missing().
    Result<void> check_none_missing(const std::string& refused);

    /// The ticking thread then fills the SSD; without it the owner calls copy_some().
    Result<void> replace_ssd(std::uint32_t slot) override;
    Result<void> start_scrub() override;
    /// Manager::add_spare(). `port` must outlive this object.
    Result<void> add_spare(SsdPort& port);
    bool copy_some(std::uint32_t commands);

    TickReport tick();
    /// While suspended, every call returns kState and tick() does nothing, as clients see it when the daemon
    /// is down.
    void suspend();
    void resume();
    [[nodiscard]] bool suspended() const;
    [[nodiscard]] StartReport start_report() const;

  private:
    struct Impl;
    explicit InProcessControlPlane(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace gnstor::daemon
