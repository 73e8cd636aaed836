// embedded_array.cpp: node, daemon decisions and clients of one process, joined over the loop wire.
#include <gnstor/embedded_array.hpp>

#include "daemon/decisions/in_process.hpp"
#include "daemon/decisions/nvmf_ssd_port.hpp"
#include "embedded/node.hpp"
#include "rdma/wire/loop/loop_wire.hpp"
#include "rdma/wire/loop/soft_nic.hpp"
#include "rdma/wire/shm/shm_server.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <system_error>

namespace gnstor {
namespace {

constexpr char kNodeAddress[] = "node";
constexpr char kHostAddress[] = "host";
constexpr std::uint32_t kEngineThreadsMax = 256;

Result<void> check(const EmbeddedArrayOptions& o) {
    if (o.ssds == 0 || o.ssds > placement::kMaxSlots)
        return error(Errc::kInvalidArgument, "an array has 1 to {} SSDs, not {}", placement::kMaxSlots,
                     o.ssds);
    if (o.engine_threads == 0 || o.engine_threads > kEngineThreadsMax)
        return error(Errc::kInvalidArgument, "an array runs on 1 to {} engine threads, not {}",
                     kEngineThreadsMax, o.engine_threads);
    if (o.directory.empty()) return {};
    std::error_code failed;
    std::filesystem::create_directories(o.directory, failed);
    if (failed)
        return error(Errc::kIo, "cannot make the folder {} for the array's stores: {}; choose another",
                     o.directory.string(), failed.message());
    return {};
}

}  // namespace

// Members are destroyed from last to first: all users of the clients' NIC before the node, the node before
// the wire.
struct EmbeddedArray::Impl {
    EmbeddedArrayOptions options;
    rdma::LoopWire wire;
    std::unique_ptr<embedded::Node> node;
    std::unique_ptr<rdma::SoftNic> host_nic;  // shared by the daemon and all clients of this process
    std::vector<std::unique_ptr<daemon::NvmfSsdPort>> ports;
    std::unique_ptr<daemon::InProcessControlPlane> daemon;
    std::unique_ptr<rdma::ShmServer> shm;

    Result<void> serve_other_processes() {
        if (options.shm_socket.empty()) return {};
        GN_ASSIGN(shm, rdma::ShmServer::start(wire, node->nic_reactors(),
                                              {.path = options.shm_socket,
                                               .node = node->address(),
                                               .mode = options.shm_mode,
                                               .strict = options.strict_nic}));
        return {};
    }

    Result<void> open_host_nic() {
        rdma::NicOptions nic;
        nic.strict = options.strict_nic;
        nic.seed = options.seed + 1;
        nic.pollers = static_cast<std::uint32_t>(node->nic_reactors().size());
        GN_ASSIGN(host_nic, rdma::SoftNic::open(wire, kHostAddress, nic, node->nic_reactors()));
        return {};
    }

    Result<void> connect_ports() {
        for (std::uint32_t i = 0; i < node->ssd_count(); ++i) {
            GN_ASSIGN(std::unique_ptr<daemon::NvmfSsdPort> port,
                      daemon::NvmfSsdPort::connect(*host_nic, i, node->identity(i)));
            ports.push_back(std::move(port));
        }
        return {};
    }

    Result<void> start_daemon(std::unique_ptr<daemon::RecordStore> records) {
        daemon::InProcessOptions daemon_options;
        daemon_options.manager.lease_ms = options.lease_ms;
        daemon_options.manager.spare_after_ms = options.spare_after_ms;
        daemon_options.manager.scrub_every_ms = options.scrub_every_ms;
        daemon_options.manager.scrub_bytes_per_s = options.scrub_bytes_per_s;
        daemon_options.manager.grant_ms = options.grant_ms;
        daemon_options.manager.seed = options.seed;
        daemon_options.manager.warnings = node->left_out();
        daemon_options.ssd_readings = [this](const daemon::SsdInfo& ssd) {
            return daemon::readings_of(ports, ssd);
        };
        daemon_options.ssd_firmware = [this](const daemon::SsdInfo& ssd) {
            return daemon::firmware_of(ports, ssd);
        };
        std::vector<daemon::SsdPort*> drives;
        for (const auto& port : ports) drives.push_back(port.get());
        GN_ASSIGN(daemon, daemon::InProcessControlPlane::start(std::move(records), std::move(drives),
                                                               std::move(daemon_options)));
        return {};
    }
};

Result<std::unique_ptr<EmbeddedArray>> EmbeddedArray::open(const EmbeddedArrayOptions& options) {
    return open(options, std::make_unique<daemon::MemoryRecordStore>());
}

Result<std::unique_ptr<EmbeddedArray>> EmbeddedArray::open(const EmbeddedArrayOptions& options,
                                                           std::unique_ptr<daemon::RecordStore> records) {
    GN_TRY(check(options));
    auto impl = std::make_unique<Impl>();
    impl->options = options;
    // Without volumes in the records, leaving one out would begin a new array from the other SSDs.
    if (options.leave_out_damaged) {
        GN_ASSIGN(const daemon::Records known, records->load());
        impl->options.leave_out_damaged = known.map.version != 0 && !known.volumes.empty();
    }
    GN_ASSIGN(impl->node, embedded::Node::open(impl->options, impl->wire, kNodeAddress));
    GN_TRY(impl->open_host_nic());
    GN_TRY(impl->connect_ports());
    GN_TRY(impl->start_daemon(std::move(records)));
    GN_TRY(impl->serve_other_processes());
    return std::unique_ptr<EmbeddedArray>(new EmbeddedArray(std::move(impl)));
}

EmbeddedArray::EmbeddedArray(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
EmbeddedArray::~EmbeddedArray() = default;

Result<std::unique_ptr<client::Client>> EmbeddedArray::connect(const client::ClientOptions& options) {
    return client::Client::connect(*impl_->daemon, *impl_->host_nic, options);
}

client::ControlPlane& EmbeddedArray::control() {
    return *impl_->daemon;
}
rdma::Nic& EmbeddedArray::host_nic() {
    return *impl_->host_nic;
}
daemon::InProcessControlPlane& EmbeddedArray::daemon() {
    return *impl_->daemon;
}
std::string EmbeddedArray::wire() const {
    return fmt::format("loop: {} SSDs in this process", impl_->node->ssd_count());
}

void EmbeddedArray::suspend_daemon() {
    impl_->daemon->suspend();
}
void EmbeddedArray::resume_daemon() {
    impl_->daemon->resume();
}
bool EmbeddedArray::daemon_suspended() const {
    return impl_->daemon->suspended();
}

std::vector<EmbeddedSsd> EmbeddedArray::ssds() const {
    std::vector<EmbeddedSsd> out;
    for (std::uint32_t i = 0; i < impl_->node->ssd_count(); ++i) out.push_back(impl_->node->describe(i));
    return out;
}

std::vector<EngineThread> EmbeddedArray::engine_threads() const {
    return impl_->node->engine_threads();
}
const EmbeddedArrayOptions& EmbeddedArray::options() const {
    return impl_->options;
}

}  // namespace gnstor
