#include "daemon/api.hpp"

#include "daemon/access.hpp"
#include "daemon/api_json.hpp"
#include "daemon/json_schema.hpp"
#include "daemon/metrics.hpp"

#include <algorithm>
#include <charconv>
#include <functional>
#include <mutex>
#include <optional>

namespace gnstor::daemon {

extern const std::string_view kOpenApiText;  // openapi.json, made into a source file by the build

namespace {

using nlohmann::json;

/// What a handler gets: checked parameters and a checked body.
struct Call {
    std::map<std::string, std::string> parameters;
    json body;
    [[nodiscard]] const std::string& text(const char* name) const { return parameters.at(name); }
    [[nodiscard]] nvme::ClientId client() const {
        return body.is_object() ? body.at("client").get<nvme::ClientId>()
                                : static_cast<nvme::ClientId>(std::stoul(parameters.at("client")));
    }
};
using Handler = std::function<Result<json>(const Call&)>;

/// One operation of the document.
struct Operation {
    std::string id, method, path;
    std::vector<std::string> segments;  ///< "{name}" stands for a path parameter
    const json* spec = nullptr;
    int success = 200;
    std::string content_type;
    Handler handler;
};

std::string dump(const json& value) {
    return value.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

/// Percent-decoding; nothing for a broken escape or a zero byte.
std::optional<std::string> decode(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        unsigned value = static_cast<unsigned char>(text[i]);
        if (text[i] == '%') {
            if (i + 2 >= text.size()) return std::nullopt;
            const char* end = text.data() + i + 3;
            if (std::from_chars(text.data() + i + 1, end, value, 16).ptr != end) return std::nullopt;
            i += 2;
        }
        if (value == 0) return std::nullopt;
        out += static_cast<char>(value);
    }
    return out;
}

std::vector<std::string> split(std::string_view text, char by) {
    std::vector<std::string> parts;
    std::size_t begin = 0;
    for (std::size_t end; (end = text.find(by, begin)) != std::string_view::npos; begin = end + 1)
        parts.emplace_back(text.substr(begin, end - begin));
    parts.emplace_back(text.substr(begin));
    return parts;
}

}  // namespace

struct Api::Impl {
    client::ControlPlane& control;
    Inspector& inspector;
    json document;
    std::vector<Operation> operations;
    std::mutex mutex;  // guards counts
    RequestCounts counts;

    Impl(client::ControlPlane& c, Inspector& i)
        : control(c), inspector(i), document(json::parse(kOpenApiText)) {}

    void add(const char* id, Handler handler);
    void add_volume_operations();
    void add_array_operations();
    Result<nvme::VolumeRecord> volume(const std::string& name);
    Result<nvme::VolumeRecord> volume(const Call& call);
    Response route(const Request& request, std::string& counted_as);
    Response run(const Operation& operation, Call call, const Request& request);
    Result<void> read_parameters(const Operation& operation, std::string_view query, Call& call) const;
    Result<void> check_parameter(const json& parameter, const std::string& value) const;
    static Response failed(int status, std::string_view code, std::string_view message);
    static Response failed(const Error& e) {
        return failed(http_status(e.code), errc_name(e.code), e.message);
    }
};

Response Api::Impl::failed(int status, std::string_view code, std::string_view message) {
    Response response;
    response.status = status;
    response.body = dump({{"error", {{"code", std::string(code)}, {"message", std::string(message)}}}});
    return response;
}

void Api::Impl::add(const char* id, Handler handler) {
    for (const auto& [path, methods] : document.at("paths").items())
        for (const auto& [method, spec] : methods.items()) {
            if (spec.at("operationId") != id) continue;
            Operation operation;
            operation.id = id;
            operation.method = method;
            std::transform(method.begin(), method.end(), operation.method.begin(),
                           [](unsigned char c) { return std::toupper(c); });
            operation.path = path;
            operation.segments = split(std::string_view(path).substr(1), '/');
            operation.spec = &spec;
            for (const auto& [status, response] : spec.at("responses").items())
                if (status[0] == '2') {
                    operation.success = std::stoi(status);
                    operation.content_type = response.at("content").begin().key();
                }
            operation.handler = std::move(handler);
            operations.push_back(std::move(operation));
            return;
        }
}

Result<nvme::VolumeRecord> Api::Impl::volume(const std::string& name) {
    GN_ASSIGN(const std::vector<nvme::VolumeRecord> all, control.list_volumes());
    for (const nvme::VolumeRecord& record : all)
        if (name == record.name) return record;
    return error(Errc::kNotFound, "there is no volume '{}'; 'gnstor volume list' shows those there are",
                 name);
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
    add("listVolumes", [this](const Call&) -> Result<json> {
        GN_ASSIGN(const std::vector<nvme::VolumeRecord> all, control.list_volumes());
        json list = json::array();
        for (const nvme::VolumeRecord& record : all) list.push_back(to_json(record));
        return json{{"volumes", list}};
    });
    add("createVolume", [this](const Call& call) -> Result<json> {
        client::CreateVolume request;
        request.name = call.body.at("name").get<std::string>();
        request.capacity_bytes = call.body.at("capacity_bytes").get<std::uint64_t>();
        request.chunk_bytes = call.body.value("chunk_bytes", request.chunk_bytes);
        request.replicas = call.body.value("replicas", request.replicas);
        request.any_writer = call.body.value("any_writer", false);
        GN_ASSIGN(const nvme::VolumeRecord record, control.create_volume(call.client(), request));
        return to_json(record);
    });
    add("getVolume", [this](const Call& call) -> Result<json> {
        GN_ASSIGN(const nvme::VolumeRecord record, volume(call));
        return to_json(record);
    });
    add("deleteVolume", [this, done](const Call& call) -> Result<json> {
        GN_TRY(control.delete_volume(call.client(), call.text("name")));
        return done;
    });
    add("openVolume", [this](const Call& call) -> Result<json> {
        const bool write = call.body.at("mode") == "write";
        GN_ASSIGN(const client::OpenedVolume opened,
                  control.open_volume(call.client(), call.text("name"),
                                      write ? client::OpenMode::kWrite : client::OpenMode::kRead));
        return json{{"volume", to_json(opened.record)},
                    {"mode", call.body.at("mode")},
                    {"lease_ms", opened.lease_ms}};
    });
    add("renewLease", [this](const Call& call) -> Result<json> {
        GN_ASSIGN(const nvme::VolumeRecord record, volume(call));
        GN_ASSIGN(const std::uint64_t lease_ms,
                  control.renew_lease(call.client(), record.geometry.volume,
                                      call.body.at("epoch").get<nvme::Epoch>()));
        return json{{"lease_ms", lease_ms}};
    });
    add("releaseVolume", [this, done](const Call& call) -> Result<json> {
        GN_ASSIGN(const nvme::VolumeRecord record, volume(call));
        GN_TRY(control.release_volume(call.client(), record.geometry.volume,
                                      call.body.at("epoch").get<nvme::Epoch>(),
                                      call.body.value("byte_length", ~std::uint64_t{0})));
        return done;
    });
    add("shareVolume", [this, done](const Call& call) -> Result<json> {
        GN_TRY(control.share_volume(call.client(), call.text("name"),
                                    call.body.value("reader", nvme::ClientId{0})));
        return done;
    });
}

void Api::Impl::add_array_operations() {
    add("listClients", [this](const Call&) -> Result<json> {
        json list = json::array();
        for (const client::ClientIdentity& identity : inspector.inspect().clients)
            list.push_back(to_json(identity));
        return json{{"clients", list}};
    });
    add("registerClient", [this](const Call& call) -> Result<json> {
        GN_ASSIGN(const client::ClientIdentity identity,
                  control.register_client(call.body.at("name").get<std::string>()));
        return to_json(identity);
    });
    add("getArray", [this](const Call&) -> Result<json> {
        GN_ASSIGN(const client::ArrayView view, control.array());
        return to_json(view);
    });
    add("listSsds", [this](const Call&) -> Result<json> {
        json list = json::array();
        for (const SsdInfo& ssd : inspector.inspect().ssds) list.push_back(to_json(ssd));
        return json{{"ssds", list}};
    });
    add("getStatus", [this](const Call&) -> Result<json> {
        GN_ASSIGN(const std::vector<nvme::VolumeRecord> volumes, control.list_volumes());
        return status_to_json(inspector.inspect(), volumes.size());
    });
    add("getHealth", [](const Call&) -> Result<json> { return json{{"status", "ok"}}; });
    add("getMetrics", [this](const Call&) -> Result<json> {
        const ArrayInfo info = inspector.inspect();
        const std::scoped_lock lock(mutex);
        return json(prometheus_text(info, counts));
    });
    add("getOpenApi", [this](const Call&) -> Result<json> { return document; });
}

Result<void> Api::Impl::check_parameter(const json& parameter, const std::string& value) const {
    const json& schema = parameter.at("schema");
    const std::string where = "parameter '" + parameter.at("name").get<std::string>() + "'";
    if (schema.at("type") != "integer") return check_schema(document, schema, json(value), where);
    std::uint64_t number = 0;
    const char* end = value.data() + value.size();
    const auto [stop, failure] = std::from_chars(value.data(), end, number);
    if (value.empty() || failure != std::errc() || stop != end)
        return error(Errc::kInvalidArgument, "{} is not a number", where);
    return check_schema(document, schema, json(number), where);
}

Result<void> Api::Impl::read_parameters(const Operation& operation, std::string_view query,
                                        Call& call) const {
    const json none = json::array();
    const json& known = operation.spec->contains("parameters") ? operation.spec->at("parameters") : none;
    for (const std::string& pair : query.empty() ? std::vector<std::string>{} : split(query, '&')) {
        const auto equals = pair.find('=');
        const auto name = decode(pair.substr(0, equals));
        const auto value = decode(equals == std::string::npos ? std::string_view()
                                                              : std::string_view(pair).substr(equals + 1));
        if (!name || !value)
            return error(Errc::kInvalidArgument, "the query string is broken near '{}'", pair.substr(0, 64));
        const bool taken = std::any_of(known.begin(), known.end(), [&](const json& p) {
            return p.at("name") == *name && p.at("in") == "query";
        });
        if (!taken)
            return error(Errc::kInvalidArgument, "there is no query parameter '{}' here",
                         name->substr(0, 64));
        if (!call.parameters.emplace(*name, *value).second)
            return error(Errc::kInvalidArgument, "the query parameter '{}' is given twice", *name);
    }
    for (const json& parameter : known) {
        const auto given = call.parameters.find(parameter.at("name").get<std::string>());
        if (given == call.parameters.end())
            return error(Errc::kInvalidArgument, "the query parameter '{}' is missing",
                         parameter.at("name").get<std::string>());
        GN_TRY(check_parameter(parameter, given->second));
    }
    return {};
}

Response Api::Impl::run(const Operation& operation, Call call, const Request& request) {
    const bool wants_body = operation.spec->contains("requestBody");
    if (!wants_body && !request.body.empty())
        return failed(400, "invalid_argument",
                      fmt::format("{} {} takes no body", operation.method, operation.path));
    if (wants_body) {
        const std::string type = request.content_type.substr(0, request.content_type.find(';'));
        if (type != "application/json")
            return failed(
                415, "unsupported_media_type",
                fmt::format("the body must be application/json, not '{}'; send the header Content-Type",
                            type.substr(0, 64)));
        Result<json> body = parse_json(request.body);
        if (!body.ok()) return failed(body.error());
        const json& schema =
            operation.spec->at("requestBody").at("content").at("application/json").at("schema");
        if (Result<void> good = check_schema(document, schema, *body, "the body"); !good.ok())
            return failed(good.error());
        call.body = std::move(body).value();
    }
    Result<json> answer = operation.handler(call);
    if (!answer.ok()) return failed(answer.error());
    const bool plain = answer->is_string();
    return Response{operation.success, plain ? "text/plain; version=0.0.4" : operation.content_type,
                    plain ? answer->get<std::string>() : dump(*answer), ""};
}

Response Api::Impl::route(const Request& request, std::string& counted_as) {
    if (request.target.size() > kMaxTargetBytes)
        return failed(414, "invalid_argument",
                      fmt::format("the target has more than {} bytes", kMaxTargetBytes));
    if (request.body.size() > kMaxBodyBytes)
        return failed(
            413, "too_large",
            fmt::format("the body has {} bytes; at most {} are taken", request.body.size(), kMaxBodyBytes));
    const std::string_view target = request.target;
    const auto mark = target.find('?');
    const std::string_view path = target.substr(0, mark);
    const std::string_view query =
        mark == std::string_view::npos ? std::string_view() : target.substr(mark + 1);
    if (path.empty() || path[0] != '/')
        return failed(400, "invalid_argument", "the target is not a path that begins with '/'");
    const std::vector<std::string> segments = split(path.substr(1), '/');
    const std::string& method = request.method == "HEAD" ? "GET" : request.method;
    std::string allow;
    for (const Operation& operation : operations) {
        if (operation.segments.size() != segments.size()) continue;
        Call call;
        bool fits = true;
        for (std::size_t i = 0; fits && i < segments.size(); ++i) {
            const auto decoded = decode(segments[i]);
            if (!decoded) return failed(400, "invalid_argument", "the path holds a broken percent escape");
            const std::string& want = operation.segments[i];
            if (want[0] == '{')
                call.parameters[want.substr(1, want.size() - 2)] = *decoded;
            else
                fits = want == *decoded;
        }
        if (!fits) continue;
        counted_as = operation.path;
        if (operation.method != method) {
            allow += (allow.empty() ? "" : ", ") + operation.method;
            continue;
        }
        if (Result<void> good = read_parameters(operation, query, call); !good.ok())
            return failed(good.error());
        return run(operation, std::move(call), request);
    }
    if (!allow.empty()) {
        Response response =
            failed(405, "method_not_allowed", fmt::format("this resource knows {} only", allow));
        response.allow = allow;
        return response;
    }
    return failed(404, "not_found", "there is no such resource; GET /openapi.json describes those there are");
}

Api::Api(client::ControlPlane& control, Inspector& inspector)
    : impl_(std::make_unique<Impl>(control, inspector)) {
    impl_->add_volume_operations();
    impl_->add_array_operations();
}
Api::~Api() = default;

Response Api::handle(const Request& request, std::string_view token) {
    std::string counted_as = "other";
    Response response;
    const std::string_view path = std::string_view(request.target).substr(0, request.target.find('?'));
    if (const auto refused = refuse_access(path, request.authorization, request.origin, token)) {
        response = Impl::failed(refused->status, errc_name(Errc::kPermission), refused->message);
        if (refused->status == 401) response.challenge = "Bearer realm=\"gnstord\"";
    } else {
        response = impl_->route(request, counted_as);
    }
    const bool known = request.method == "GET" || request.method == "POST" || request.method == "DELETE" ||
                       request.method == "HEAD";
    const std::scoped_lock lock(impl_->mutex);
    ++impl_->counts[{counted_as, known ? request.method : "other", response.status}];
    return response;
}

Response Api::refuse(int status, std::string_view code, std::string_view message) {
    const std::scoped_lock lock(impl_->mutex);
    ++impl_->counts[{"other", "other", status}];
    return Impl::failed(status, code, message);
}

std::string_view Api::openapi() {
    return kOpenApiText;
}

std::vector<std::string> Api::operations() const {
    std::vector<std::string> ids;
    for (const Operation& operation : impl_->operations) ids.push_back(operation.id);
    return ids;
}

}  // namespace gnstor::daemon
