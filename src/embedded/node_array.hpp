// node_array.hpp: the SSDs of nodes that are other processes, as one array: what gnstord serves with --nodes.
//
// The daemon's side is that of an embedded array (InProcessControlPlane). SSDs are found by asking each
// node's discovery controller, and reached as an NVMe-oF host over the udp wire.
// Invariants
//   * in a new array an SSD's slot follows from its node and its number there; afterwards the map assigns
//     slots by UUID;
//   * the SSDs found are kept in a file: a node that is down when the daemon starts delays it only briefly;
//     its SSDs keep their slots, and are connected when it comes back;
//   * an SSD that a node begins to serve later becomes a spare (Manager::add_spare);
//   * one thread checks about once a second whether each node answers; commands to a node that does not fail
//     at once, so that it delays nothing else.
// Threads: control() and inspect() from any.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/client/control_plane.hpp>

#include "daemon/decisions/inspector.hpp"
#include "daemon/records/records.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gnstor::nvmf::auth {
class DhchapKey;
}

namespace gnstor::embedded {

struct NodeAddress {
    std::string address;        ///< IP
    std::string port = "4420";  ///< of its discovery service
    friend bool operator==(const NodeAddress&, const NodeAddress&) = default;
};

/// ADDR or ADDR:PORT, an IPv6 address with a port in brackets.
Result<NodeAddress> parse_node_address(const std::string& text);

struct NodeArrayOptions {
    std::vector<NodeAddress> nodes;
    std::string address;          ///< of this process on the udp wire; empty: chosen (client::UdpHost)
    std::filesystem::path known;  ///< file that keeps the SSDs found; empty: none
    std::uint64_t lease_ms = 300'000;
    std::uint64_t spare_after_ms = 600'000;  ///< as EmbeddedArrayOptions
    std::uint64_t scrub_every_ms = 7ull * 86'400'000, scrub_bytes_per_s = 64ull << 20;
    /// docs/array.md, rule 3: an SSD that was away is admitted by its next grant.
    std::uint32_t grant_ms = 10'000;
    std::uint32_t wait_ms = 10'000;     ///< at the first start, for nodes that do not answer
    std::uint32_t known_wait_ms = 500;  ///< for nodes whose SSDs are known: reads work without them
    std::uint32_t timeout_ms = 2'000;   ///< for a command to an SSD, and for a node's health check
    std::uint32_t ask_ms = 1'000;       ///< interval of the nodes' health check
    /// Returns the key of the node at an address; null: that node does not authenticate hosts. An empty
    /// function: no node does.
    std::function<Result<std::shared_ptr<const nvmf::auth::DhchapKey>>(const std::string& address)>
        node_key{};
};

class NodeArray final : public daemon::Inspector {
  public:
    static Result<std::unique_ptr<NodeArray>> open(const NodeArrayOptions& options,
                                                   std::unique_ptr<daemon::RecordStore> records);
    ~NodeArray() override;

    [[nodiscard]] client::ControlPlane& control();
    /// Includes the nodes' health: SSDs of a node that does not answer are marked as in trouble.
    daemon::ArrayInfo inspect() override;
    std::optional<daemon::ClientInfo> client_of(nvme::ClientId client) override;
    daemon::EventPage events_since(std::uint64_t number) override;
    [[nodiscard]] const std::string& address() const;

  private:
    struct Impl;
    explicit NodeArray(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace gnstor::embedded
