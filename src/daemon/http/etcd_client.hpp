// etcd_client.hpp: an EtcdPort over HTTP: POST to the JSON gateways of etcd's servers, with TLS and a client certificate.
//
// A connection for each request: none is used that a server has closed meanwhile. One thread at a time.
#pragma once

#include "daemon/http/array_address.hpp"
#include "daemon/records/etcd_port.hpp"

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace gnstor::daemon {

struct EtcdServers {
    std::vector<ArrayAddress> endpoints;  ///< http:// or https://, all the same
    /// For https: the CA of the servers' certificates (empty: the system's), and this client's certificate and key, if the
    /// servers ask for one. PEM.
    std::filesystem::path ca, certificate, key;
};

/// Of --etcd: URL[,URL...]. kInvalidArgument: a text that is no http:// or https:// URL with a port, or files without https.
Result<EtcdServers> parse_etcd_servers(std::string_view urls, const std::filesystem::path& ca = {},
                                       const std::filesystem::path& certificate = {},
                                       const std::filesystem::path& key = {});

[[nodiscard]] std::unique_ptr<EtcdPort> connect_etcd(EtcdServers servers);

}  // namespace gnstor::daemon
