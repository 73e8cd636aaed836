// remote_array.cpp: gnstor/remote_array.hpp: control plane over HTTP, NIC on the udp wire.
#include <gnstor/remote_array.hpp>

#include "client/udp_host.hpp"
#include "daemon/array_address.hpp"
#include "daemon/http_client.hpp"

#include <arpa/inet.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

namespace gnstor {
namespace {

bool is_ip(const std::string& text) {
    std::array<unsigned char, sizeof(in6_addr)> bytes{};
    return ::inet_pton(AF_INET, text.c_str(), bytes.data()) == 1 ||
           ::inet_pton(AF_INET6, text.c_str(), bytes.data()) == 1;
}

}  // namespace

struct RemoteArray::Impl {
    explicit Impl(const daemon::HttpClientOptions& options) : control(options) {}
    daemon::HttpControlPlane control;
    std::vector<std::string> nodes;  ///< addresses, each once
    std::unique_ptr<client::UdpHost> host;
};

RemoteArray::RemoteArray(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RemoteArray::~RemoteArray() = default;

Result<std::unique_ptr<RemoteArray>> RemoteArray::open(const RemoteArrayOptions& options) {
    GN_ASSIGN(const daemon::HttpClientOptions http,
              daemon::client_options(options.array, options.token_file));
    auto impl = std::make_unique<Impl>(http);
    GN_ASSIGN(const client::ArrayView view, impl->control.array());
    for (const client::SsdAddress& ssd : view.ssds) {
        if (!is_ip(ssd.nic_address))
            return error(Errc::kUnsupported,
                         "the SSDs of {} are reached within gnstord's own process only; start them as nodes "
                         "('gnstor up --nodes 1'), and other processes reach them",
                         options.array);
        if (std::find(impl->nodes.begin(), impl->nodes.end(), ssd.nic_address) == impl->nodes.end())
            impl->nodes.push_back(ssd.nic_address);
    }
    if (impl->nodes.empty())
        return error(Errc::kState, "the array of {} has no SSDs in its map ('gnstor ssd list')",
                     options.array);
    GN_ASSIGN(impl->host, client::UdpHost::open(options.address, impl->nodes.front()));
    return std::unique_ptr<RemoteArray>(new RemoteArray(std::move(impl)));
}

Result<std::unique_ptr<client::Client>> RemoteArray::connect(const client::ClientOptions& options) {
    return client::Client::connect(impl_->control, impl_->host->nic(), options);
}

client::ControlPlane& RemoteArray::control() {
    return impl_->control;
}
rdma::SoftNic& RemoteArray::host_nic() {
    return impl_->host->nic();
}

std::uint32_t RemoteArray::packet_bytes() const {
    return impl_->host->wire().mtu();
}

std::string RemoteArray::wire() const {
    return fmt::format("udp from {} to {}, {} bytes a packet (shm is not used yet)",
                       impl_->host->address(), fmt::join(impl_->nodes, ", "), packet_bytes());
}

}  // namespace gnstor
