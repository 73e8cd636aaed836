// array_factory.cpp: implements array_factory.hpp with the embedded array (gnstor/embedded_array.hpp), nodes
// and gateways.
#include "cli/array_factory.hpp"

#include <gnstor/embedded_array.hpp>

#include <gnstor/base/log.hpp>
#include <gnstor/base/shell_word.hpp>
#include <gnstor/base/uuid.hpp>

#include "cli/host_file.hpp"
#include "cli/object_store.hpp"
#include "daemon/decisions/in_process.hpp"
#include "daemon/records/sqlite_store.hpp"
#include "embedded/node.hpp"
#include "embedded/node_array.hpp"
#include "embedded/node_key.hpp"
#include "gateway/serve.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <thread>

namespace gnstor::cli {
namespace {

namespace fs = std::filesystem;

class EmbeddedServedArray final : public ServedArray {
  public:
    explicit EmbeddedServedArray(std::unique_ptr<EmbeddedArray> array) : array_(std::move(array)) {}
    client::ControlPlane& control() override { return array_->control(); }
    daemon::Inspector& inspector() override { return array_->daemon(); }

  private:
    std::unique_ptr<EmbeddedArray> array_;
};

class ServedNodeArray final : public ServedArray {
  public:
    explicit ServedNodeArray(std::unique_ptr<embedded::NodeArray> array) : array_(std::move(array)) {}
    client::ControlPlane& control() override { return array_->control(); }
    daemon::Inspector& inspector() override { return *array_; }

  private:
    std::unique_ptr<embedded::NodeArray> array_;
};

class UdpServedNode final : public ServedNode {
  public:
    explicit UdpServedNode(std::unique_ptr<embedded::Node> node) : node_(std::move(node)) {}
    std::vector<ServedSsd> ssds() const override {
        std::vector<ServedSsd> all;
        for (std::uint32_t i = 0; i < node_->ssd_count(); ++i)
            all.push_back({node_->subsystem_nqn(i), Uuid{node_->drive(i).uuid()}.to_string(),
                           node_->drive(i).serial(), node_->drive(i).capacity_blocks() * nvme::kBlockBytes});
        return all;
    }
    std::uint32_t packet_bytes() const override { return node_->udp()->mtu(); }
    bool serves_shm() const override { return node_->serves_shm(); }

  private:
    std::unique_ptr<embedded::Node> node_;
};

class UdpGateway final : public ServedNode, public daemon::GatewayInspector {
  public:
    static Result<std::unique_ptr<ServedNode>> open(const RemoteArrayOptions& array,
                                                    const GatewayVolume& volume, const std::string& port) {
        std::unique_ptr<UdpGateway> made(new UdpGateway());
        GN_ASSIGN(made->array_, RemoteArray::open(array));
        rdma::SoftNic* const nic = made->array_->listening_nic();
        if (nic == nullptr)
            return error(
                Errc::kUnsupported,
                "the SSDs of this array are in gnstord's own process, so a gateway cannot serve its volumes "
                "to hosts over the udp wire; start the array with nodes ('gnstor up --nodes 1')");
        GN_ASSIGN(made->client_, made->array_->connect(gateway::client_options(volume.as)));
        gateway::VolumeToServe what;
        what.client = made->client_.get();
        what.options.volume = volume.name;
        what.options.read_only = volume.read_only;
        what.options.serves_older = volume.serves_older;
        what.options.record = volume.record;
        gateway::ServeOptions options;
        options.port = made->port_ = port;
        made->read_only_ = volume.read_only;
        if (!volume.hosts.empty()) {
            options.target.hosts = made->hosts_ = std::make_shared<nvmf::HostList>();
            GN_ASSIGN(made->watch_, HostFileWatch::start(volume.hosts, made->hosts_));
        }
        GN_ASSIGN(made->served_, gateway::serve(*nic, {&what, 1}, options));
        return std::unique_ptr<ServedNode>(std::move(made));
    }
    std::vector<ServedSsd> ssds() const override {
        gateway::Gateway& gateway = served_->gateway(0);
        const nvme::VolumeRecord& volume = gateway.volume();
        return {{served_->nqn(0), Uuid{gateway.uuid()}.to_string(), gateway.serial(),
                 volume.geometry.capacity_blocks * nvme::kBlockBytes}};
    }
    std::uint32_t packet_bytes() const override { return array_->packet_bytes(); }
    daemon::GatewayInspector* gateway() override { return this; }
    daemon::GatewayInfo inspect_gateway() override;

  private:
    UdpGateway() = default;
    std::string port_;
    bool read_only_ = false;
    std::shared_ptr<nvmf::HostList> hosts_;  // null: any host
    std::unique_ptr<HostFileWatch> watch_;
    std::unique_ptr<RemoteArray> array_;
    std::unique_ptr<client::Client> client_;
    std::unique_ptr<gateway::ServedVolumes> served_;
};

daemon::GatewayInfo UdpGateway::inspect_gateway() {
    gateway::Gateway& gateway = served_->gateway(0);
    const gateway::GatewayCounters done = gateway.counters();
    const gateway::GatewayState now = gateway.state();
    daemon::GatewayInfo info;
    info.volume = gateway.volume().name;
    info.subsystem_nqn = served_->nqn(0);
    info.capacity_bytes = gateway.volume().geometry.capacity_blocks * nvme::kBlockBytes;
    info.read_only = read_only_;
    info.writable = gateway.writable();
    info.any_host = hosts_ == nullptr;
    info.hosts_listed = hosts_ == nullptr ? 0 : hosts_->size();
    info.hosts_trouble = watch_ == nullptr ? "" : watch_->trouble();
    // Counters of the volume's subsystem, plus those of the port: connections that reached no subsystem.
    nvmf::SubsystemCounters fabric{};
    for (const std::string& name : {info.subsystem_nqn, port_}) {
        const Result<nvmf::SubsystemCounters> some = served_->target().counters(name);
        if (!some.ok()) continue;
        fabric.capsules += some->capsules;
        fabric.refused += some->refused;
        fabric.malformed += some->malformed;
        fabric.bytes_to_host += some->bytes_to_host;
        fabric.bytes_to_drive += some->bytes_to_drive;
        fabric.connections_accepted += some->connections_accepted;
        fabric.connections_open += some->connections_open;
        fabric.connections_refused += some->connections_refused;
        fabric.connections_failed += some->connections_failed;
        fabric.connections_disconnected += some->connections_disconnected;
        fabric.keep_alive_expired += some->keep_alive_expired;
    }
    info.counters = {{"reads", done.reads},
                     {"writes", done.writes},
                     {"flushes", done.flushes},
                     {"trims", done.trims},
                     {"write_zeroes", done.write_zeroes},
                     {"blocks_read", done.blocks_read},
                     {"blocks_written", done.blocks_written},
                     {"refused", done.refused + fabric.refused},
                     {"failed", done.failed},
                     {"reclaims", done.reclaims},
                     {"record_writes", done.record_writes},
                     {"share_waits", done.share_waits},
                     {"older_reads", done.older_reads},
                     {"capsules", fabric.capsules},
                     {"malformed", fabric.malformed},
                     {"bytes_to_host", fabric.bytes_to_host},
                     {"bytes_from_host", fabric.bytes_to_drive},
                     {"connections_accepted", fabric.connections_accepted},
                     {"connections_refused", fabric.connections_refused},
                     {"connections_failed", fabric.connections_failed},
                     {"connections_disconnected", fabric.connections_disconnected},
                     {"keep_alive_expired", fabric.keep_alive_expired}};
    info.connections_open = fabric.connections_open;
    info.under_way = now.under_way;
    info.waiting = now.waiting;
    info.places = now.places;
    info.places_of_one_ssd = now.places_of_one_ssd;
    info.places_of_many = now.places_of_many;
    info.ssds = now.ssds;
    info.many = now.many;
    info.unflushed = now.unflushed;
    info.slots_gone = now.slots_gone;
    info.flushes_fail = now.flushes_fail;
    return info;
}

/// The number in the file name of an SSD's store; nullopt for other spellings, such as ssd-01.store.
std::optional<std::uint32_t> number_of_store(const std::string& name) {
    constexpr std::string_view kBefore = "ssd-";
    std::uint32_t number = 0;
    if (!name.starts_with(kBefore)) return std::nullopt;
    (void)std::from_chars(name.data() + kBefore.size(), name.data() + name.size(), number);
    return name == fmt::format("ssd-{}.store", number) ? std::optional(number) : std::nullopt;
}

/// Number of stores (ssd-0.store and up) in a folder. kNotFound if the numbers have a gap: a drive is
/// missing.
Result<std::uint32_t> count_stores(const fs::path& directory) {
    std::uint32_t count = 0, highest = 0;
    std::error_code failed;
    for (auto it = fs::directory_iterator(directory, failed); !failed && it != fs::directory_iterator();
         it.increment(failed)) {
        const std::optional<std::uint32_t> number = number_of_store(it->path().filename().string());
        if (!number) continue;
        ++count;
        highest = std::max(highest, *number);
    }
    // An incomplete listing must not be opened as the whole array.
    if (failed && failed != std::errc::no_such_file_or_directory && failed != std::errc::not_a_directory)
        return error(Errc::kIo, "the folder {} cannot be read: {}", directory.string(), failed.message());
    if (count != 0 && count - 1 != highest)
        return error(Errc::kNotFound,
                     "{} holds {} SSD stores (ssd-N.store), numbered up to {}: some are missing; put the "
                     "missing files back",
                     directory.string(), count, highest);
    return count;
}

constexpr std::uint32_t kPagesPerMib = 256;

Result<EmbeddedArrayOptions> embedded_options(const ArrayOptions& options) {
    EmbeddedArrayOptions embedded;
    embedded.directory = options.directory;
    embedded.ssd_capacity_bytes = options.ssd_capacity_bytes;
    embedded.lease_ms = options.lease_ms;
    embedded.spare_after_ms = std::uint64_t{options.spare_after_s} * 1000;
    embedded.scrub_every_ms = std::uint64_t{options.scrub.every_days} * 86'400'000;
    embedded.scrub_bytes_per_s = std::uint64_t{options.scrub.mib_per_s} << 20;
    embedded.service_units = options.service_units;
    embedded.scrub_pages_per_second = options.scrub_mib * kPagesPerMib;
    embedded.durability = options.durability;
    embedded.direct_io = options.direct_io;
    embedded.leave_out_damaged = true;
    embedded.profile = options.profile;
    embedded.engine_threads = options.engine_threads != 0
                                  ? options.engine_threads
                                  : std::max(1u, std::thread::hardware_concurrency() / 2);
    // An existing array keeps its number of SSDs.
    GN_ASSIGN(const std::uint32_t present, count_stores(options.directory));
    embedded.ssds = present != 0 ? present : options.ssds;
    return embedded;
}

Result<std::unique_ptr<ServedArray>> make_array_of_nodes(const ArrayOptions& options,
                                                         std::unique_ptr<daemon::RecordStore> store) {
    // Stores in this folder belong to an array in one process: they are not the nodes' SSDs.
    GN_ASSIGN(const std::uint32_t here, count_stores(options.directory));
    if (here != 0)
        return error(Errc::kExists,
                     "{} holds the stores of {} SSDs that gnstord itself serves; choose another folder "
                     "(--dir) for an array of nodes",
                     options.directory.string(), here);
    embedded::NodeArrayOptions nodes;
    for (const std::string& node : options.nodes) {
        GN_ASSIGN(embedded::NodeAddress where, embedded::parse_node_address(node));
        nodes.nodes.push_back(std::move(where));
    }
    if (!options.node_keys.empty()) {
        GN_ASSIGN(const embedded::NodeKeys keys, embedded::NodeKeys::read(options.node_keys));
        GN_TRY(keys.check_names_only(nodes.nodes));
        nodes.node_key = [keys](const std::string& address) -> Result<embedded::NodeKeys::Key> {
            if (const embedded::NodeKeys::Key key = keys.of(address)) return key;
            return error(Errc::kInvalidArgument,
                         "no key file was given for the node at {}; copy node.key from its folder to this "
                         "machine and give --node-key {}=FILE",
                         address, address);
        };
    }
    nodes.address = options.address;
    nodes.known = options.directory / "nodes.json";
    nodes.lease_ms = options.lease_ms;
    nodes.spare_after_ms = std::uint64_t{options.spare_after_s} * 1000;
    nodes.scrub_every_ms = std::uint64_t{options.scrub.every_days} * 86'400'000;
    nodes.scrub_bytes_per_s = std::uint64_t{options.scrub.mib_per_s} << 20;
    nodes.wait_ms = options.wait_ms;
    GN_ASSIGN(std::unique_ptr<embedded::NodeArray> array, embedded::NodeArray::open(nodes, std::move(store)));
    return std::unique_ptr<ServedArray>(std::make_unique<ServedNodeArray>(std::move(array)));
}

}  // namespace

Result<std::unique_ptr<ServedArray>> make_array(const ArrayOptions& options,
                                                std::unique_ptr<daemon::RecordStore> store) {
    if (!options.nodes.empty()) return make_array_of_nodes(options, std::move(store));
    std::error_code failed;
    if (fs::exists(options.directory / "nodes.json", failed))
        return error(Errc::kState,
                     "the array in {} has its SSDs on nodes (see nodes.json there); give the addresses of "
                     "the nodes with --nodes",
                     options.directory.string());
    GN_ASSIGN(EmbeddedArrayOptions embedded, embedded_options(options));
    embedded.shm_socket = options.shm_socket;
    embedded.shm_mode = options.shm_mode;
    GN_ASSIGN(std::unique_ptr<EmbeddedArray> array, EmbeddedArray::open(embedded, std::move(store)));
    return std::unique_ptr<ServedArray>(std::make_unique<EmbeddedServedArray>(std::move(array)));
}

Result<std::unique_ptr<ServedNode>> make_node(const ArrayOptions& options, const std::string& address,
                                              const std::string& port) {
    GN_ASSIGN(const EmbeddedArrayOptions embedded, embedded_options(options));
    embedded::UdpListen listen{
        .address = address, .port = port, .shm = options.shm_socket, .shm_mode = options.shm_mode};
    if (!options.key_file.empty()) {
        GN_ASSIGN(listen.hosts, embedded::hosts_of_node(options.key_file));
    }
    GN_ASSIGN(std::unique_ptr<embedded::Node> node, embedded::Node::open(embedded, listen));
    return std::unique_ptr<ServedNode>(std::make_unique<UdpServedNode>(std::move(node)));
}

Result<std::unique_ptr<ServedNode>> make_gateway(const RemoteArrayOptions& array, const GatewayVolume& volume,
                                                 const std::string& port) {
    return UdpGateway::open(array, volume, port);
}

Result<std::unique_ptr<ObjectStore>> open_remote_object_store(const RemoteArrayOptions& options,
                                                              const std::string& owner, std::string& wire) {
    GN_ASSIGN(std::unique_ptr<RemoteArray> array, RemoteArray::open(options));
    wire = array->wire();
    return RemoteObjectStore::open(std::move(array), owner);
}

Result<std::unique_ptr<ObjectStore>> open_object_store(const ArrayOptions& options, bool create) {
    // Locked before its files are read: another put may be making stores there, or removing them.
    std::unique_ptr<StoreFolder> folder;
    if (create) {
        GN_ASSIGN(folder, StoreFolder::take(options.directory));
    }
    GN_ASSIGN(EmbeddedArrayOptions embedded, embedded_options(options));
    embedded.scrub_pages_per_second = 0;  // one command is too short for a scrub to help
    GN_ASSIGN(const std::uint32_t present, count_stores(options.directory));
    std::error_code failed;
    const fs::path file = options.directory / daemon::kRecordsFile;
    const bool there = fs::exists(file, failed);
    if (failed)
        return error(Errc::kIo, "cannot check whether {} exists: {}", file.string(), failed.message());
    const Error stores_missing =
        error(Errc::kNotFound,
              "{} holds the records of an array, but the stores of its SSDs (ssd-0.store, ssd-1.store and so "
              "on) are missing; put them back into the folder",
              options.directory.string());
    if (!create && present == 0 && there) return stores_missing;
    if (!create && present == 0)
        return error(Errc::kNotFound, "there is no store in {}; `gnstor put --store {} FILE` creates it",
                     options.directory.string(), shell_word(options.directory.string()));
    if (folder && present == 0 && !there) folder->begin();
    // The record file detects an SSD that was rolled back to an older copy. A command that only reads does
    // not make one; without it, each command rebuilds the records from the SSDs.
    std::unique_ptr<daemon::RecordStore> records = std::make_unique<daemon::MemoryRecordStore>();
    if (create || there) {
        GN_ASSIGN(records, daemon::SqliteRecordStore::open({file, false}));
    }
    if (present == 0 && there) {  // else new SSDs would take the names of the missing ones
        GN_ASSIGN(const daemon::Records known, records->load());
        if (!known.volumes.empty()) return stores_missing;
    }
    return EmbeddedObjectStore::open(embedded, std::move(records), std::move(folder));
}

}  // namespace gnstor::cli
