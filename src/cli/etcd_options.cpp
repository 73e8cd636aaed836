#include "cli/etcd_options.hpp"

namespace gnstor::cli {

Result<daemon::EtcdServers> EtcdOptions::servers() const {
    if (prefix.size() < 2 || prefix.front() != '/' || prefix.back() == '/')
        return error(
            Errc::kInvalidArgument,
            "--etcd-prefix: '{}' is not a prefix of keys; write /gnstor/NAME, with a name for each array",
            prefix);
    return daemon::parse_etcd_servers(urls, ca, certificate, key);
}

void add_etcd_details(CLI::App& app, EtcdOptions& options, CLI::Option* etcd) {
    CLI::Option* const prefix = app.add_option("--etcd-prefix", options.prefix,
                                               "prefix of the array's keys in etcd: one for each array")
                                    ->capture_default_str();
    CLI::Option* const ca =
        app.add_option("--etcd-ca", options.ca,
                       "file (PEM) with the CA of etcd's certificates; default: the CAs that the "
                       "system trusts");
    CLI::Option* const certificate =
        app.add_option("--etcd-cert", options.certificate, "client certificate (PEM) for etcd");
    CLI::Option* const key = app.add_option("--etcd-key", options.key, "private key (PEM) of --etcd-cert");
    certificate->needs(key);
    key->needs(certificate);
    if (etcd != nullptr)
        for (CLI::Option* const option : {prefix, ca, certificate, key}) option->needs(etcd);
}

CLI::Option* add_etcd_options(CLI::App& app, EtcdOptions& options) {
    CLI::Option* const etcd = app.add_option(
        "--etcd", options.urls,
        "URL[,URL...] of etcd's servers, in which the records are kept; of all gnstords of the array one "
        "leads, and another takes over when it ends");
    add_etcd_details(app, options, etcd);
    return etcd;
}

}  // namespace gnstor::cli
