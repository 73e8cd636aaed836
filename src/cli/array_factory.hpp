// array_factory.hpp: the interfaces between the programs and an array, and the functions that make them.
// gnstord serves the array from make_array(); put, get, cat, ls and rm use open_object_store().
// array_factory.cpp builds both on EmbeddedArray, tests on models.
#pragma once

#include <gnstor/client/control_plane.hpp>
#include <gnstor/embedded_array.hpp>
#include <gnstor/remote_array.hpp>

#include "cli/scrub_options.hpp"
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
    std::filesystem::path directory;  ///< folder of the SSDs' stores; made if absent
    std::uint32_t ssds = 4;
    std::uint64_t ssd_capacity_bytes = 1ull << 30;
    std::uint64_t lease_ms = 300'000;
    ScrubSettings scrub{};
    std::uint32_t spare_after_s = 600;  ///< a slot that is out so long is given to a spare; 0: never
    std::uint32_t service_units = 1;    ///< of each new SSD
    std::uint32_t scrub_mib = 4;        ///< MiB a second that each service unit checks in the background
    SsdDurability durability = SsdDurability::kDefault;
    bool direct_io = false;
    std::filesystem::path shm_socket;  ///< Unix socket of the shm wire for other processes; empty: none
    std::uint32_t shm_mode = 0600;     ///< permission bits of that socket
    std::string profile = "none";      ///< timing of the modelled hardware: a profile's name, or a file
    std::uint32_t engine_threads = 0;  ///< 0: half of the machine's cores
    /// Nodes (ADDR[:PORT] on the udp wire) whose SSDs form the array; if there are any, this process opens no
    /// SSDs.
    std::vector<std::string> nodes;
    /// Files with the keys of those nodes, FILE or ADDRESS=FILE (embedded/node_key.hpp); empty: the
    /// nodes do not authenticate hosts.
    std::vector<std::string> node_keys;
    /// make_node(): the file with this node's key, created if it does not exist; empty: the node lets any
    /// host in.
    std::filesystem::path key_file;
    std::string address;             ///< IP address of this process on the udp wire; empty: chosen
    std::uint32_t wait_ms = 10'000;  ///< how long to wait for nodes that do not answer at the start
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
    [[nodiscard]] virtual std::uint32_t packet_bytes() const = 0;    ///< RoCE MTU of its wire
    [[nodiscard]] virtual bool serves_shm() const { return false; }  ///< also serves the shm wire
    [[nodiscard]] virtual daemon::GatewayInspector* gateway() { return nullptr; }  ///< null: none
};

/// Opens (recovering) or makes the SSDs and serves them at `address` (IP) and `port` of the udp wire.
Result<std::unique_ptr<ServedNode>> make_node(const ArrayOptions& options, const std::string& address,
                                              const std::string& port);

struct GatewayVolume {
    std::string name;
    std::string as;  ///< name of the client that opens it
    bool read_only = false;
    bool serves_older = false;     ///< gateway::GatewayOptions::serves_older
    std::filesystem::path record;  ///< gateway::GatewayOptions::record
    std::filesystem::path hosts;   ///< file that lists the hosts that may use it (host_file.hpp); empty: any
};

/// A gateway (src/gateway): serves one volume of a remote array as an ordinary NVMe namespace, at `port` of
/// RemoteArrayOptions::address, while this object lives. ssds() returns its one subsystem.
Result<std::unique_ptr<ServedNode>> make_gateway(const RemoteArrayOptions& array, const GatewayVolume& volume,
                                                 const std::string& port);

/// What get() wrote.
struct ObjectGot {
    std::uint64_t bytes = 0;
    /// Blocks that were written in an older version, because the newest one is torn or corrupt on every
    /// replica.
    std::uint64_t older_blocks = 0;
};

struct ObjectInfo {
    std::string name;
    std::uint64_t bytes = 0;
    std::uint32_t replicas = 0;
};

/// Called with the bytes moved so far and the total; may be empty.
using Progress = std::function<void(std::uint64_t bytes, std::uint64_t total)>;

/// Objects: named byte strings, each in a volume of its own. One thread.
class ObjectStore {
  public:
    virtual ~ObjectStore() = default;
    /// `bytes`: length of `from`; ~0: unknown, then `from` is read to its end first. kExists if the name is
    /// taken.
    virtual Result<void> put(const std::string& name, std::istream& from, std::uint64_t bytes,
                             const Progress& progress) = 0;
    /// `older`: a block whose newest version is torn or corrupt on every replica is written in its older
    /// version; without it, such a block is kCorrupt.
    virtual Result<ObjectGot> get(const std::string& name, std::ostream& to, bool older,
                                  const Progress& progress) = 0;
    virtual Result<std::vector<ObjectInfo>> list() = 0;
    virtual Result<void> remove(const std::string& name) = 0;
};

/// `create`: makes a store if there is none (put); otherwise a missing store is kNotFound (get, cat, ls, rm).
Result<std::unique_ptr<ObjectStore>> open_object_store(const ArrayOptions& options, bool create);

/// The client that owns the objects of an array, for all who administer it. Not the default of `gnstor --as`,
/// so that a volume that a user made is never taken for an interrupted object.
inline constexpr char kObjectsClient[] = "gnstor-objects";

/// The objects of an array that other processes serve, of the client `owner`. `wire`: set to a description of
/// the wire in use, for display.
Result<std::unique_ptr<ObjectStore>> open_remote_object_store(const RemoteArrayOptions& options,
                                                              const std::string& owner, std::string& wire);

}  // namespace gnstor::cli
