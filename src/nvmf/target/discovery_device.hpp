// discovery_device.hpp: the device of the discovery subsystem: serves its admin queues on a reactor.
//
// Invariant: a fetched command is answered in the same poll, except event requests, which are held until they
// are aborted, their controller is reset or their queue is deleted. Threads: as NvmeDevice says; poll() runs
// on the reactor.
#pragma once

#include <gnstor/base/reactor.hpp>

#include "nvmf/target/discovery.hpp"
#include "ssd/drive/served_queue.hpp"
#include "ssd/queues/nvme_device.hpp"

#include <functional>
#include <memory>
#include <vector>

namespace gnstor::nvmf {

class DiscoveryDevice final : public ssd::NvmeDevice, public Poller {
  public:
    /// `reactor` outlives it.
    DiscoveryDevice(DiscoveryLog log, Reactor& reactor);
    ~DiscoveryDevice() override { reactor_.remove(*this); }

    std::uint32_t poll() override;

    Result<ssd::NvmeQueue*> create_queue(std::uint16_t id, std::uint32_t depth, nvme::ClientId client,
                                         ssd::Priority priority, bool privileged,
                                         std::uint16_t controller = 0) override;
    Result<void> delete_queue(ssd::NvmeQueue* queue) override;
    void flush(std::function<void(bool)> done) override { done(true); }  // it stores nothing
    [[nodiscard]] const std::array<std::uint8_t, 16>& uuid() const override { return uuid_; }
    [[nodiscard]] const std::string& serial() const override { return serial_; }
    [[nodiscard]] bool is_timed() const override { return false; }
    [[nodiscard]] ssd::Dialect dialect() const override { return ssd::Dialect::kPlain; }

  private:
    void take(ssd::ServedQueue& q, std::uint32_t slot);
    void reset(ssd::ServedQueue& q, std::uint32_t slot);
    void abort(ssd::ServedQueue& q, std::uint32_t slot);

    const DiscoveryCommands commands_;
    Reactor& reactor_;
    const std::array<std::uint8_t, 16> uuid_{};  // unused: its NQN is the well-known one
    const std::string serial_;
    std::vector<std::unique_ptr<ssd::ServedQueue>> queues_;  // reactor's thread only
};

}  // namespace gnstor::nvmf
