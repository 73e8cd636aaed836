// discovery.hpp: a discovery controller's log page (the target's subsystems and ports), and the few commands
// that it serves. Pure.
//
// NVMe Base 2.0, 3.1.2.3. Discovery controllers have only an admin queue. A host may ask for keep-alive, and
// so keep a controller; but the log never changes while a target is open, so no events are offered (OAES 0),
// and event requests are held until their queue is deleted.
#pragma once

#include <gnstor/nvme/discovery.hpp>

#include "ssd/drive/admin.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace gnstor::nvmf {

struct DiscoveryRecord {
    std::string nqn;
    std::string address;
    std::string service;
    std::uint16_t port_id = 0;
    std::uint16_t admin_entries_max = 0;
};

/// The log page, as bytes.
class DiscoveryLog {
  public:
    /// Names, addresses and services that do not fit their fields are errors.
    static Result<DiscoveryLog> make(std::span<const DiscoveryRecord> records, std::uint64_t generation = 0);
    /// Copies from `offset`, and zeroes past the end. False: `offset` is past the end.
    [[nodiscard]] bool read(std::uint64_t offset, std::span<std::byte> to) const;
    [[nodiscard]] std::size_t bytes() const { return page_.size(); }

  private:
    std::vector<std::byte> page_;
};

/// Identify, Get Log Page, features. Anything else: Invalid Command Opcode.
class DiscoveryCommands {
  public:
    explicit DiscoveryCommands(DiscoveryLog log) : log_(std::move(log)) {}
    /// `data`: the data buffer of `command`, ssd::AdminHandler::data_bytes() long.
    [[nodiscard]] ssd::AdminReply handle(const nvme::Command& command, ssd::ControllerFeatures& features,
                                         std::span<std::byte> data) const;

  private:
    [[nodiscard]] ssd::AdminReply get_log_page(const nvme::Command& command, std::span<std::byte> data) const;

    DiscoveryLog log_;
};

}  // namespace gnstor::nvmf
