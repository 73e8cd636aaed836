// remote_array.cpp: RemoteArray: control plane over HTTP, NIC on the shm or the udp wire.
#include <gnstor/remote_array.hpp>

#include "client/udp_host.hpp"
#include "daemon/http/array_address.hpp"
#include "daemon/http/http_client.hpp"
#include "daemon/http/ip_address.hpp"
#include "daemon/remote/serving_processes.hpp"
#include "rdma/wire/shm/shm_nic.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

namespace gnstor {
namespace {

/// Whether the address is this machine's own: then the route to it has that same source address. All of
/// 127.0.0.0/8 is.
bool on_this_machine(const std::string& address) {
    const Result<std::string> from = client::local_address_for(address);
    return address.rfind("127.", 0) == 0 || (from.ok() && *from == address);
}

Result<rdma::ShmNode::Place> place_of(const std::string& node) {
    const auto found = daemon::shm_of_node(node, rdma::kRocePort);
    if (!found)
        return error(Errc::kNotFound, "this user cannot see the shared-memory socket of the node {}", node);
    return rdma::ShmNode::Place{found->socket, found->process};
}

}  // namespace

struct RemoteArray::Impl {
    explicit Impl(const daemon::HttpClientOptions& options) : control(options) {}
    daemon::HttpControlPlane control;
    std::vector<std::string> nodes;  ///< addresses, each once
    std::unique_ptr<client::UdpHost> host;
    // Used instead of `host` if processes of this machine (gnstord, or nodes) serve all SSDs.
    std::filesystem::path gnstord_socket;  ///< set if gnstord serves them
    std::string servers;                   ///< their description in wire()
    std::unique_ptr<rdma::Nic> shm_nic;
    std::string why_udp;  ///< why udp is used although all nodes are on this machine

    rdma::Nic& nic() {
        if (shm_nic != nullptr) return *shm_nic;
        return host->nic();
    }

    /// For SSDs in gnstord's own process: reached over shared memory, only from the same machine.
    Result<void> open_shm(const daemon::HttpClientOptions& gnstord, const std::string& array) {
        if (gnstord.socket.empty())
            return error(Errc::kUnsupported,
                         "the SSDs of {} are in gnstord's own process, which this machine's programs reach "
                         "by its Unix socket (--array unix:PATH); for other machines start them as nodes "
                         "('gnstor up --nodes 1')",
                         array);
        servers = "gnstord works";
        gnstord_socket = gnstord.socket;
        // Not bound to one process: after a restart another one serves there.
        GN_ASSIGN(shm_nic, rdma::open_shm_nic(shm_socket_beside(gnstord.socket)));
        return {};
    }

    /// Over shared memory to nodes, which are all on this machine.
    Result<void> open_shm_of_nodes() {
        std::vector<rdma::ShmNode> all;
        for (const std::string& node : nodes) all.push_back({node, [node] { return place_of(node); }});
        GN_ASSIGN(shm_nic, rdma::open_shm_nic(std::move(all)));
        servers = nodes.size() == 1 ? "the node works" : "the nodes work";
        return {};
    }

    /// Tries open_shm_of_nodes(); sets `why_udp` if it fails.
    void try_shm_of_nodes() {
        if (!std::all_of(nodes.begin(), nodes.end(), on_this_machine)) return;
        if (const Result<void> opened = open_shm_of_nodes(); !opened.ok())
            why_udp = "no shared memory: " + opened.error().message;
    }
};

std::filesystem::path shm_socket_beside(const std::filesystem::path& gnstord_socket) {
    return gnstord_socket.string() + ".shm";
}

RemoteArray::RemoteArray(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RemoteArray::~RemoteArray() = default;

Result<std::unique_ptr<RemoteArray>> RemoteArray::open(const RemoteArrayOptions& options) {
    GN_ASSIGN(const daemon::HttpClientOptions http,
              daemon::client_options(options.array, options.token_file,
                                     {.ca_file = options.tls_ca, .fingerprint = options.tls_fingerprint}));
    auto impl = std::make_unique<Impl>(http);
    GN_ASSIGN(const client::ArrayView view, impl->control.array());
    const auto elsewhere = [](const client::SsdAddress& ssd) {
        return daemon::is_ip_address(ssd.nic_address);
    };
    if (!view.ssds.empty() && std::none_of(view.ssds.begin(), view.ssds.end(), elsewhere)) {
        GN_TRY(impl->open_shm(http, options.array));
        return std::unique_ptr<RemoteArray>(new RemoteArray(std::move(impl)));
    }
    for (const client::SsdAddress& ssd : view.ssds) {
        if (!elsewhere(ssd))
            return error(Errc::kUnsupported,
                         "the SSD at '{}' of {} has no IP address, but other SSDs of this array have one",
                         ssd.nic_address, options.array);
        if (std::find(impl->nodes.begin(), impl->nodes.end(), ssd.nic_address) == impl->nodes.end())
            impl->nodes.push_back(ssd.nic_address);
    }
    if (impl->nodes.empty())
        return error(Errc::kState, "the array of {} has no SSDs in its map ('gnstor ssd list')",
                     options.array);
    if (options.address.empty()) impl->try_shm_of_nodes();
    if (impl->shm_nic == nullptr) {
        GN_ASSIGN(impl->host, client::UdpHost::open(options.address, impl->nodes.front()));
    }
    return std::unique_ptr<RemoteArray>(new RemoteArray(std::move(impl)));
}

Result<std::unique_ptr<client::Client>> RemoteArray::connect(const client::ClientOptions& options) {
    return client::Client::connect(impl_->control, impl_->nic(), options);
}

client::ControlPlane& RemoteArray::control() {
    return impl_->control;
}
rdma::Nic& RemoteArray::host_nic() {
    return impl_->nic();
}

rdma::SoftNic* RemoteArray::listening_nic() {
    return impl_->host != nullptr ? &impl_->host->nic() : nullptr;
}

std::uint32_t RemoteArray::packet_bytes() const {
    return impl_->host != nullptr ? impl_->host->wire().mtu() : 0;
}

std::vector<ServingProcess> RemoteArray::serving_processes() const {
    return impl_->gnstord_socket.empty() ? daemon::processes_bound_to(impl_->nodes, rdma::kRocePort)
                                         : daemon::process_listening_at(impl_->gnstord_socket);
}

std::optional<NicThread> RemoteArray::nic_thread() const {
    if (impl_->host == nullptr) return std::nullopt;
    const Reactor& reactor = impl_->host->reactor();
    return NicThread{reactor.name(), reactor.cpu_time_ns(), reactor.busy_time_ns()};
}

std::string RemoteArray::wire() const {
    if (impl_->host == nullptr)
        return fmt::format("shm: {} on queues in this process's memory ({})", impl_->servers,
                           impl_->shm_nic->address());
    return fmt::format("udp from {} to {}, {} bytes a packet{}", impl_->host->address(),
                       fmt::join(impl_->nodes, ", "), packet_bytes(),
                       impl_->why_udp.empty() ? "" : " (" + impl_->why_udp + ")");
}

}  // namespace gnstor
