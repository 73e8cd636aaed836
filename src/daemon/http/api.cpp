#include "daemon/http/api.hpp"

#include "daemon/http/api_json.hpp"
#include "daemon/http/metrics.hpp"
#include "daemon/http/routes.hpp"

namespace gnstor::daemon {

extern const std::string_view kOpenApiText;  // openapi.json, converted to a source file by the build

namespace {

using nlohmann::json;

}  // namespace

struct Api::Impl {
    client::ControlPlane& control;
    Inspector& inspector;
    Routes routes;

    Impl(client::ControlPlane& c, Inspector& i) : control(c), inspector(i), routes(kOpenApiText, "gnstord") {}

    void add_volume_operations();
    void add_array_operations();
    Result<nvme::VolumeRecord> volume(const std::string& name);
    Result<nvme::VolumeRecord> volume(const Call& call);
};

Result<nvme::VolumeRecord> Api::Impl::volume(const std::string& name) {
    GN_ASSIGN(const std::vector<nvme::VolumeRecord> all, control.list_volumes());
    for (const nvme::VolumeRecord& record : all)
        if (name == record.name) return record;
    return error(Errc::kNotFound, "there is no volume '{}'; 'gnstor volume list' lists the volumes", name);
}

Result<nvme::VolumeRecord> Api::Impl::volume(const Call& call) {
    GN_ASSIGN(const nvme::VolumeRecord record, volume(call.text("name")));
    if (call.body.contains("volume") && call.body.at("volume") != record.geometry.volume)
        return error(Errc::kNotFound, "volume '{}' has VID {} now, not {}: it was deleted and made again",
                     record.name, record.geometry.volume, call.body.at("volume").dump());
    return record;
}

void Api::Impl::add_volume_operations() {
    const json done{{"done", true}};
    routes.add("listVolumes", [this](const Call&) -> Result<json> {
        GN_ASSIGN(const std::vector<nvme::VolumeRecord> all, control.list_volumes());
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
        GN_ASSIGN(const nvme::VolumeRecord record, control.create_volume(call.client(), request));
        return to_json(record);
    });
    routes.add("getVolume", [this](const Call& call) -> Result<json> {
        GN_ASSIGN(const nvme::VolumeRecord record, volume(call));
        return to_json(record);
    });
    routes.add("deleteVolume", [this, done](const Call& call) -> Result<json> {
        GN_TRY(control.delete_volume(call.client(), call.text("name")));
        return done;
    });
    routes.add("openVolume", [this](const Call& call) -> Result<json> {
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
    routes.add("shareVolume", [this, done](const Call& call) -> Result<json> {
        GN_TRY(control.share_volume(call.client(), call.text("name"),
                                    call.body.value("reader", nvme::ClientId{0})));
        return done;
    });
}

void Api::Impl::add_array_operations() {
    routes.add("listClients", [this](const Call&) -> Result<json> {
        json list = json::array();
        for (const client::ClientIdentity& identity : inspector.inspect().clients)
            list.push_back(to_json(identity));
        return json{{"clients", list}};
    });
    routes.add("registerClient", [this](const Call& call) -> Result<json> {
        GN_ASSIGN(const client::ClientIdentity identity,
                  control.register_client(call.body.at("name").get<std::string>()));
        return to_json(identity);
    });
    routes.add("getArray", [this](const Call&) -> Result<json> {
        GN_ASSIGN(const client::ArrayView view, control.array());
        return to_json(view);
    });
    routes.add("listSsds", [this](const Call&) -> Result<json> {
        json list = json::array();
        for (const SsdInfo& ssd : inspector.inspect().ssds) list.push_back(to_json(ssd));
        return json{{"ssds", list}};
    });
    routes.add("getStatus", [this](const Call&) -> Result<json> {
        GN_ASSIGN(const std::vector<nvme::VolumeRecord> volumes, control.list_volumes());
        return status_to_json(inspector.inspect(), volumes.size());
    });
    routes.add("getHealth", [](const Call&) -> Result<json> { return json{{"status", "ok"}}; });
    routes.add("getMetrics", [this](const Call&) -> Result<json> {
        return json(prometheus_text(inspector.inspect(), routes.counts()));
    });
    routes.add("getOpenApi", [this](const Call&) -> Result<json> { return routes.document(); });
}

Api::Api(client::ControlPlane& control, Inspector& inspector)
    : impl_(std::make_unique<Impl>(control, inspector)) {
    impl_->add_volume_operations();
    impl_->add_array_operations();
}
Api::~Api() = default;

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
