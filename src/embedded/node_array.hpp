// node_array.hpp: the SSDs of nodes that are other processes, as one array: what gnstord serves with --nodes.
//
// The daemon's side is that of an embedded array (InProcessControlPlane); SSDs are found by asking each
// node's discovery controller, and reached as an NVMe-oF host over the udp wire. Invariants
//   * an SSD takes the place that its node and its number there give it when the array is begun; later the
//     map says by UUID which slot it fills;
//   * what was found is kept in a file: a node that is away when the daemon starts holds it up for a moment,
//     its SSDs keep their slots, and are connected when it comes back;
//   * one thread asks every node about once a second whether it is there; commands to one that is not fail at
//     once, so that it holds nobody up.
// Threads: control() and inspect() from any.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/client/control_plane.hpp>

#include "daemon/decisions/inspector.hpp"
#include "daemon/records/records.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace gnstor::embedded {

struct NodeAddress {
    std::string address;        ///< IP
    std::string port = "4420";  ///< of discovery
    friend bool operator==(const NodeAddress&, const NodeAddress&) = default;
};

/// ADDR or ADDR:PORT, an IPv6 address with a port in brackets.
Result<NodeAddress> parse_node_address(const std::string& text);

struct NodeArrayOptions {
    std::vector<NodeAddress> nodes;
    std::string address;          ///< of this process on the udp wire; empty: chosen (client::UdpHost)
    std::filesystem::path known;  ///< file of what was found; empty: none
    std::uint64_t lease_ms = 300'000;
    std::uint32_t grant_ms = 10'000;  ///< ARRAY.md, rule 3: an SSD that was away is let in by its renewal
    std::uint32_t wait_ms = 10'000;   ///< for nodes that do not answer at the first start
    std::uint32_t known_wait_ms =
        500;                           ///< for those of which it is known what they have: reads go on without
    std::uint32_t timeout_ms = 2'000;  ///< of a command to an SSD, and of asking a node
    std::uint32_t ask_ms = 1'000;      ///< how often nodes are asked whether they are there
};

class NodeArray final : public daemon::Inspector {
  public:
    static Result<std::unique_ptr<NodeArray>> open(const NodeArrayOptions& options,
                                                   std::unique_ptr<daemon::RecordStore> records);
    ~NodeArray() override;

    [[nodiscard]] client::ControlPlane& control();
    /// With what is known of nodes: SSDs of one that does not answer are in trouble.
    daemon::ArrayInfo inspect() override;
    [[nodiscard]] const std::string& address() const;

  private:
    struct Impl;
    explicit NodeArray(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace gnstor::embedded
