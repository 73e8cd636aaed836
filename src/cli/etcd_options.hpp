// etcd_options.hpp: where the records are in etcd, as options of gnstord and of 'gnstor records'. One thread.
#pragma once

#include "daemon/http/etcd_client.hpp"

#include <CLI/CLI.hpp>

#include <string>

namespace gnstor::cli {

struct EtcdOptions {
    std::string urls;  ///< empty: the records are not in etcd
    std::string prefix = "/gnstor/array";
    std::string ca, certificate, key;

    [[nodiscard]] bool given() const { return !urls.empty(); }
    /// kInvalidArgument: an option cannot be read, or does not fit the others.
    [[nodiscard]] Result<daemon::EtcdServers> servers() const;
};

/// Adds --etcd, which is returned, and those that need it.
CLI::Option* add_etcd_options(CLI::App& app, EtcdOptions& options);
/// The same without --etcd, whose URLs are given otherwise.
void add_etcd_details(CLI::App& app, EtcdOptions& options, CLI::Option* etcd);

}  // namespace gnstor::cli
