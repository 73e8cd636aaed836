// http_client.hpp: a ControlPlane that asks a gnstord over HTTP, as openapi.json specifies.
//
// Any thread (one mutex: one request at a time). Every call ends within `deadline`. Returns gnstord's own
// errors, with their code; kIo if it does not answer. Of several gnstords of one array, of which one leads, the next is
// asked when one cannot be reached or is a standby, again and again for as long as a standby needs to take over. With `tls` the server is verified first: the token is
// sent to no other one (kPermission).
#pragma once

#include <gnstor/client/control_plane.hpp>

#include "daemon/http/tls_trust.hpp"

#include <nlohmann/json_fwd.hpp>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gnstor::daemon {

struct HttpClientOptions {
    std::filesystem::path socket;  ///< Unix socket; empty: TCP
    std::string host = "127.0.0.1";
    int port = 0;
    std::string token{};  ///< TCP: sent with every request
    std::chrono::milliseconds deadline{30'000};
    std::optional<TlsTrust> tls{};  ///< TCP: TLS to a server that this names; nullopt: plain HTTP
    std::vector<HttpClientOptions>
        others{};  ///< other gnstords of the array; their `others` and deadlines are ignored
};

class HttpControlPlane final : public client::ControlPlane {
  public:
    explicit HttpControlPlane(const HttpClientOptions& options);
    ~HttpControlPlane() override;

    Result<client::ClientIdentity> register_client(const std::string& name) override;
    Result<client::ClientAccess> add_client(const std::string& name) override;
    Result<client::ClientAccess> rotate_client(const std::string& name) override;
    Result<void> remove_client(const std::string& name) override;
    Result<void> replace_ssd(std::uint32_t slot) override;
    Result<void> start_scrub() override;
    Result<std::vector<client::SsdKeys>> ssd_keys(nvme::ClientId client) override;
    Result<client::ArrayView> array() override;
    Result<nvme::VolumeRecord> create_volume(nvme::ClientId client,
                                             const client::CreateVolume& request) override;
    Result<client::OpenedVolume> open_volume(nvme::ClientId client, const std::string& name,
                                             client::OpenMode mode) override;
    Result<std::uint64_t> renew_lease(nvme::ClientId client, nvme::VolumeId volume,
                                      nvme::Epoch epoch) override;
    Result<void> release_volume(nvme::ClientId client, nvme::VolumeId volume, nvme::Epoch epoch,
                                std::uint64_t byte_length) override;
    Result<void> share_volume(nvme::ClientId owner, const std::string& name, nvme::ClientId reader) override;
    Result<void> unshare_volume(nvme::ClientId owner, const std::string& name,
                                nvme::ClientId reader) override;
    Result<void> delete_volume(nvme::ClientId owner, const std::string& name) override;
    Result<std::vector<nvme::VolumeRecord>> list_volumes() override;

    /// GET of any resource: parsed JSON, or the error that the server returned.
    Result<nlohmann::json> get(const std::string& target);
    Result<nlohmann::json> post(const std::string& target, const nlohmann::json& body);
    Result<nlohmann::json> post(const std::string& target);  ///< without a body
    Result<nlohmann::json> del(const std::string& target);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace gnstor::daemon
