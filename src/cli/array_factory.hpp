// array_factory.hpp: the one place where the programs meet an array. gnstord serves what make_array() gives,
// and put/get/cat/ls/rm work on what open_object_store() gives; array_factory.cpp makes both from an
// EmbeddedArray, tests from models.
#pragma once

#include <gnstor/client/control_plane.hpp>
#include <gnstor/embedded_array.hpp>
#include <gnstor/remote_array.hpp>

#include "daemon/decisions/inspector.hpp"
#include "daemon/http/gateway_status.hpp"
#include "daemon/records/records.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

namespace gnstor::cli {

struct ArrayOptions {
    std::filesystem::path directory;  ///< where the SSDs' stores lie; made if absent
    std::uint32_t ssds = 4;
    std::uint64_t ssd_capacity_bytes = 1ull << 30;
    std::uint64_t lease_ms = 300'000;
    std::uint32_t service_units = 1;  ///< of each SSD that is made
    std::uint32_t scrub_mib = 4;      ///< MiB a second that each service unit checks in the background
    SsdDurability durability = SsdDurability::kDefault;
    bool direct_io = false;
    std::filesystem::path shm_socket;  ///< where other processes reach the SSDs; empty: none do
    std::uint32_t shm_mode = 0600;     ///< of that socket
    std::string profile = "none";      ///< of the hardware that is modelled: a name, or a file
    std::uint32_t engine_threads = 0;  ///< 0: half of the machine's
    /// The SSDs are those of these nodes (ADDR[:PORT]), other processes on the udp wire; none are opened
    /// here.
    std::vector<std::string> nodes;
    std::string address;             ///< of this process on that wire; empty: chosen
    std::uint32_t wait_ms = 10'000;  ///< for nodes that do not answer at the start
};

/// An array that runs while this object lives.
class ServedArray {
  public:
    virtual ~ServedArray() = default;
    virtual client::ControlPlane& control() = 0;
    virtual daemon::Inspector& inspector() = 0;
};

/// Opens (recovering) or makes the SSDs and takes the array over with the records of `store`.
Result<std::unique_ptr<ServedArray>> make_array(const ArrayOptions& options,
                                                std::unique_ptr<daemon::RecordStore> store);

/// One SSD that a node serves.
struct ServedSsd {
    std::string nqn, uuid, serial;
    std::uint64_t capacity_bytes = 0;
};

/// A node that serves its SSDs to other processes while this object lives.
class ServedNode {
  public:
    virtual ~ServedNode() = default;
    [[nodiscard]] virtual std::vector<ServedSsd> ssds() const = 0;
    [[nodiscard]] virtual std::uint32_t packet_bytes() const = 0;                  ///< of the wire
    [[nodiscard]] virtual bool serves_shm() const { return false; }                ///< too
    [[nodiscard]] virtual daemon::GatewayInspector* gateway() { return nullptr; }  ///< of a gateway alone
};

/// Opens (recovering) or makes the SSDs and serves them at `address` (IP) and `port` of the udp wire.
Result<std::unique_ptr<ServedNode>> make_node(const ArrayOptions& options, const std::string& address,
                                              const std::string& port);

struct GatewayVolume {
    std::string name;
    std::string as;  ///< the client that opens it
    bool read_only = false;
    bool serves_older = false;     ///< gateway::GatewayOptions::serves_older
    std::filesystem::path record;  ///< gateway::GatewayOptions::record
};

/// A volume of an array that others serve, as an ordinary NVMe namespace at `port` of the array's address
/// (RemoteArrayOptions), while this object lives: a gateway, src/gateway. Its ssds() are that one subsystem.
Result<std::unique_ptr<ServedNode>> make_gateway(const RemoteArrayOptions& array, const GatewayVolume& volume,
                                                 const std::string& port);

/// What a get wrote.
struct ObjectGot {
    std::uint64_t bytes = 0;
    /// Blocks of which the older version was written.
    std::uint64_t older_blocks = 0;
};

struct ObjectInfo {
    std::string name;
    std::uint64_t bytes = 0;
    std::uint32_t replicas = 0;
};

/// Told the bytes moved so far, and of how many; may be empty.
using Progress = std::function<void(std::uint64_t bytes, std::uint64_t total)>;

/// Named byte strings, each in a volume of its own; kept in files between commands. One thread.
class ObjectStore {
  public:
    virtual ~ObjectStore() = default;
    /// `bytes`: how many will come, ~0: unknown (it is then read to its end first). kExists where the name is
    /// taken.
    virtual Result<void> put(const std::string& name, std::istream& from, std::uint64_t bytes,
                             const Progress& progress) = 0;
    /// `older`: whether blocks whose newest version is doubtful on every replica come as their older one;
    /// else they make an error.
    virtual Result<ObjectGot> get(const std::string& name, std::ostream& to, bool older,
                                  const Progress& progress) = 0;
    virtual Result<std::vector<ObjectInfo>> list() = 0;
    virtual Result<void> remove(const std::string& name) = 0;
};

/// `create`: whether a store is begun where there is none (put), or that is an error (get, cat, ls, rm).
Result<std::unique_ptr<ObjectStore>> open_object_store(const ArrayOptions& options, bool create);

/// The objects of an array that other processes serve. `wire` becomes what joins them, for people.
Result<std::unique_ptr<ObjectStore>> open_remote_object_store(const RemoteArrayOptions& options,
                                                              std::string& wire);

}  // namespace gnstor::cli
