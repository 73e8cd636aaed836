#include "daemon/http/api.hpp"

#include "daemon/decisions/manager.hpp"
#include "daemon/http/api_json.hpp"
#include "daemon/http/client_token.hpp"
#include "daemon/http/dashboard.hpp"
#include "daemon/http/metrics.hpp"
#include "daemon/http/routes.hpp"

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

namespace gnstor::daemon {

extern const std::string_view kOpenApiText;  // openapi.json, converted to a source file by the build

namespace {

using nlohmann::json;

/// As the Manager says it.
Error no_volume(const std::string& name) {
    return error(Errc::kNotFound, "there is no volume '{}'; 'gnstor volume list' lists the volumes", name);
}

}  // namespace

struct Api::Impl {
    client::ControlPlane& control;
    Inspector& inspector;
    Routes routes;
    std::mutex mutex;  // guards what follows
    TcpInterface tcp;
    std::string token;  ///< of administrators over TCP; empty: not served there

    Impl(client::ControlPlane& c, Inspector& i)
        : control(c), inspector(i), routes(kOpenApiText, "gnstord", [this](nvme::ClientId id) {
              const std::optional<ClientInfo> client = inspector.client_of(id);
              return client ? std::optional(client->generation) : std::nullopt;
          }) {}

    void add_volume_operations();
    void add_sharing_operations();
    void add_client_operations();
    void add_array_operations();
    void add_tcp(json& status);
    Result<std::vector<nvme::VolumeRecord>> volumes(nvme::ClientId caller);
    Result<nvme::VolumeRecord> volume(const std::string& name, nvme::ClientId caller);
    Result<nvme::VolumeRecord> volume(const Call& call);
    Result<void> check_visible(const std::string& name, nvme::ClientId caller);
    Result<json> access(Result<client::ClientAccess> of);
};

/// The volumes that the client may see; caller 0: all.
Result<std::vector<nvme::VolumeRecord>> Api::Impl::volumes(nvme::ClientId caller) {
    GN_ASSIGN(std::vector<nvme::VolumeRecord> all, control.list_volumes());
    if (caller != 0) std::erase_if(all, [caller](const auto& record) { return !may_read(record, caller); });
    return all;
}

Result<nvme::VolumeRecord> Api::Impl::volume(const std::string& name, nvme::ClientId caller) {
    GN_ASSIGN(const std::vector<nvme::VolumeRecord> all, volumes(caller));
    for (const nvme::VolumeRecord& record : all)
        if (name == record.name) return record;
    return no_volume(name);
}

Result<nvme::VolumeRecord> Api::Impl::volume(const Call& call) {
    GN_ASSIGN(const nvme::VolumeRecord record, volume(call.text("name"), call.caller));
    if (call.body.contains("volume") && call.body.at("volume") != record.geometry.volume)
        return error(Errc::kNotFound, "volume '{}' has VID {} now, not {}: it was deleted and made again",
                     record.name, record.geometry.volume, call.body.at("volume").dump());
    return record;
}

/// kNotFound, as for a volume that does not exist, if the client may not know of this one. Volumes that are not
/// listed are left to the caller's request, as a deletion that is asked for again.
Result<void> Api::Impl::check_visible(const std::string& name, nvme::ClientId caller) {
    GN_ASSIGN(const std::vector<nvme::VolumeRecord> all, volumes(0));
    const bool hidden = std::ranges::any_of(all, [&](const auto& record) {
        return caller != 0 && name == record.name && !may_read(record, caller);
    });
    if (!hidden) return {};
    return no_volume(name);
}

void Api::Impl::add_volume_operations() {
    const json done{{"done", true}};
    routes.add("listVolumes", [this](const Call& call) -> Result<json> {
        GN_ASSIGN(const std::vector<nvme::VolumeRecord> all, volumes(call.caller));
        json list = json::array();
        for (const nvme::VolumeRecord& record : all) list.push_back(to_json(record));
        return json{{"volumes", list}};
    });
    routes.add("createVolume", [this](const Call& call) -> Result<json> {
        client::CreateVolume request;
        request.name = call.body.at("name").get<std::string>();
        request.capacity_bytes = call.body.at("capacity_bytes").get<std::uint64_t>();
        request.chunk_bytes = call.body.value("chunk_bytes", request.chunk_bytes);
        request.replicas = call.body.value("replicas", request.replicas);
        request.any_writer = call.body.value("any_writer", false);
        Result<nvme::VolumeRecord> made = control.create_volume(call.client(), request);
        const bool exists = !made.ok() && made.error().code == Errc::kExists;
        if (call.caller != 0 && exists && !volume(request.name, call.caller).ok())
            return error(
                Errc::kExists,
                "the name '{}' is taken, by a volume of another client or one that is being deleted; "
                "choose another, or try later",
                request.name);
        if (!made.ok()) return std::move(made).error();
        return to_json(*made);
    });
    routes.add("getVolume", [this](const Call& call) -> Result<json> {
        GN_ASSIGN(const nvme::VolumeRecord record, volume(call));
        return to_json(record);
    });
    routes.add("deleteVolume", [this, done](const Call& call) -> Result<json> {
        GN_TRY(check_visible(call.text("name"), call.caller));
        GN_TRY(control.delete_volume(call.client(), call.text("name")));
        return done;
    });
    routes.add("openVolume", [this](const Call& call) -> Result<json> {
        GN_TRY(check_visible(call.text("name"), call.caller));
        const bool write = call.body.at("mode") == "write";
        GN_ASSIGN(const client::OpenedVolume opened,
                  control.open_volume(call.client(), call.text("name"),
                                      write ? client::OpenMode::kWrite : client::OpenMode::kRead));
        return json{{"volume", to_json(opened.record)},
                    {"mode", call.body.at("mode")},
                    {"lease_ms", opened.lease_ms}};
    });
    routes.add("renewLease", [this](const Call& call) -> Result<json> {
        GN_ASSIGN(const nvme::VolumeRecord record, volume(call));
        GN_ASSIGN(const std::uint64_t lease_ms,
                  control.renew_lease(call.client(), record.geometry.volume,
                                      call.body.at("epoch").get<nvme::Epoch>()));
        return json{{"lease_ms", lease_ms}};
    });
    routes.add("releaseVolume", [this, done](const Call& call) -> Result<json> {
        GN_ASSIGN(const nvme::VolumeRecord record, volume(call));
        GN_TRY(control.release_volume(call.client(), record.geometry.volume,
                                      call.body.at("epoch").get<nvme::Epoch>(),
                                      call.body.value("byte_length", ~std::uint64_t{0})));
        return done;
    });
}

void Api::Impl::add_sharing_operations() {
    const json done{{"done", true}};
    routes.add("shareVolume", [this, done](const Call& call) -> Result<json> {
        GN_TRY(check_visible(call.text("name"), call.caller));
        GN_TRY(control.share_volume(call.client(), call.text("name"),
                                    call.body.value("reader", nvme::ClientId{0})));
        return done;
    });
    routes.add("unshareVolume", [this, done](const Call& call) -> Result<json> {
        GN_TRY(check_visible(call.text("name"), call.caller));
        GN_TRY(control.unshare_volume(call.client(), call.text("name"),
                                      call.body.value("reader", nvme::ClientId{0})));
        return done;
    });
}

/// The JSON of what a client gets: its id and keys, and its token if gnstord serves TCP.
Result<json> Api::Impl::access(Result<client::ClientAccess> of) {
    if (!of.ok()) return std::move(of).error();
    const std::scoped_lock lock(mutex);
    if (!token.empty()) {
        GN_ASSIGN(of->token, make_client_token(token, {of->identity.id, of->generation}));
        of->address = tcp.url;
        of->certificate_fingerprint = tcp.fingerprint;
    }
    return to_json(*of);
}

void Api::Impl::add_client_operations() {
    routes.add("listClients", [this](const Call&) -> Result<json> {
        json list = json::array();
        for (const ClientInfo& client : inspector.inspect().clients) list.push_back(to_json(client));
        return json{{"clients", list}};
    });
    routes.add("registerClient", [this](const Call& call) -> Result<json> {
        const std::string name = call.body.at("name").get<std::string>();
        const std::optional<ClientInfo> own =
            call.caller == 0 ? std::nullopt : inspector.client_of(call.caller);
        if (call.caller != 0 && (!own || own->name != name))
            return error(Errc::kPermission,
                         "the token is of client '{}', and does not let its holder act as '{}'; act as the "
                         "former (gnstor takes --as)",
                         own ? own->name : std::to_string(call.caller), name);
        GN_ASSIGN(const client::ClientIdentity identity, control.register_client(name));
        return to_json(identity);
    });
    routes.add("addClient",
               [this](const Call& call) { return access(control.add_client(call.text("name"))); });
    routes.add("rotateClient",
               [this](const Call& call) { return access(control.rotate_client(call.text("name"))); });
    routes.add("removeClient", [this](const Call& call) -> Result<json> {
        GN_TRY(control.remove_client(call.text("name")));
        return json{{"done", true}};
    });
    routes.add("getKeys", [this](const Call& call) -> Result<json> {
        GN_ASSIGN(const std::vector<client::SsdKeys> keys, control.ssd_keys(call.client()));
        json list = json::array();
        for (const client::SsdKeys& one : keys) list.push_back(to_json(one));
        return json{{"keys", list}};
    });
}

void Api::Impl::add_array_operations() {
    routes.add("getArray", [this](const Call&) -> Result<json> {
        GN_ASSIGN(const client::ArrayView view, control.array());
        return to_json(view);
    });
    routes.add("listSsds", [this](const Call&) -> Result<json> {
        json list = json::array();
        for (const SsdInfo& ssd : inspector.inspect().ssds) list.push_back(to_json(ssd));
        return json{{"ssds", list}};
    });
    routes.add("replaceSsd", [this](const Call& call) -> Result<json> {
        GN_TRY(control.replace_ssd(std::stoul(call.text("slot"))));
        return json{{"done", true}};
    });
    routes.add("getScrub",
               [this](const Call&) -> Result<json> { return to_json(inspector.inspect().scrub); });
    routes.add("startScrub", [this](const Call&) -> Result<json> {
        GN_TRY(control.start_scrub());
        return json{{"done", true}};
    });
    routes.add("getStatus", [this](const Call& call) -> Result<json> {
        GN_ASSIGN(const std::vector<nvme::VolumeRecord> all, volumes(call.caller));
        ArrayInfo info = inspector.inspect();
        // Leases name volumes and clients: only those of volumes that this client may know of.
        if (call.caller != 0)
            std::erase_if(info.leases, [&](const LeaseInfo& lease) {
                return std::ranges::none_of(
                    all, [&](const auto& record) { return record.geometry.volume == lease.volume; });
            });
        if (call.caller != 0) info.warnings.clear();  // they name volumes and clients, too
        json status = status_to_json(info, all.size());
        add_tcp(status);
        return status;
    });
    routes.add("getArrayHealth",
               [this](const Call&) -> Result<json> { return to_json(health_of(inspector.inspect())); });
    routes.add("getCapacity", [this](const Call&) -> Result<json> {
        GN_ASSIGN(const client::ArrayView view, control.array());
        return capacity_to_json(inspector.inspect(), view.map);
    });
    routes.add("listEvents", [this](const Call& call) -> Result<json> {
        const auto since = call.parameters.find("since");
        return to_json(
            inspector.events_since(since == call.parameters.end() ? 0 : std::stoull(since->second)));
    });
    routes.add("getHealth", [](const Call&) -> Result<json> { return json{{"status", "ok"}}; });
    routes.add("getMetrics", [this](const Call&) -> Result<json> {
        return json(prometheus_text(inspector.inspect(), routes.counts()));
    });
    routes.add("getOpenApi", [this](const Call&) -> Result<json> { return routes.document(); });
}

void Api::Impl::add_tcp(json& status) {
    const std::scoped_lock lock(mutex);
    if (tcp.url.empty()) return;
    json& shown = status["tcp"] = {{"url", tcp.url}};
    if (tcp.fingerprint.empty()) return;
    shown["certificate_fingerprint"] = tcp.fingerprint;
    shown["certificate_expires"] = tcp.expires;
}

Api::Api(client::ControlPlane& control, Inspector& inspector)
    : impl_(std::make_unique<Impl>(control, inspector)) {
    impl_->add_volume_operations();
    impl_->add_sharing_operations();
    impl_->add_client_operations();
    impl_->add_array_operations();
    impl_->routes.add_pages(dashboard_response);
}
Api::~Api() = default;

void Api::tell_tcp(TcpInterface tcp, std::string token) {
    const std::scoped_lock lock(impl_->mutex);
    impl_->tcp = std::move(tcp);
    impl_->token = std::move(token);
}

Response Api::handle(const Request& request, std::string_view token) {
    return impl_->routes.handle(request, token);
}

Response Api::refuse(int status, std::string_view code, std::string_view message) {
    return impl_->routes.refuse(status, code, message);
}

std::vector<std::string> Api::operations() const {
    return impl_->routes.operations();
}

std::string_view Api::openapi() {
    return kOpenApiText;
}

}  // namespace gnstor::daemon
