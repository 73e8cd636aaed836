#include "daemon/http/routes.hpp"

#include "daemon/http/api_json.hpp"
#include "daemon/http/error_response.hpp"
#include "daemon/http/json_schema.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <utility>

namespace gnstor::daemon {

namespace {

using nlohmann::json;

std::string dump(const json& value) {
    return value.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

/// Whether the client that asks may ask for this at all, or in this call.
std::optional<std::string> refuse_client(const json& spec, const Call& call) {
    if (call.caller == 0) return std::nullopt;
    const std::string allowed = spec.value("x-client-token", std::string());
    if (allowed == "any" || (allowed == "own" && call.client() == call.caller)) return std::nullopt;
    if (allowed == "own")
        return fmt::format("the token is of client {}, and does not let its holder act as client {}",
                           call.caller, call.client());
    return fmt::format(
        "the token is of client {}; this takes the token of an administrator (the contents of gnstord.token)",
        call.caller);
}

/// Percent-decodes; std::nullopt for a broken escape or a zero byte.
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

Response failed(const Error& e) {
    return error_response(http_status(e.code), errc_name(e.code), e.message);
}

}  // namespace

Routes::Routes(std::string_view document, std::string program, GenerationOf generation_of)
    : document_(json::parse(document)),
      program_(std::move(program)),
      generation_of_(std::move(generation_of)) {}

void Routes::add(const char* id, Handler handler) {
    for (const auto& [path, methods] : document_.at("paths").items())
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
            operations_.push_back(std::move(operation));
            return;
        }
}

Result<void> Routes::check_parameter(const json& parameter, const std::string& value) const {
    const json& schema = parameter.at("schema");
    const std::string where = "parameter '" + parameter.at("name").get<std::string>() + "'";
    if (schema.at("type") != "integer") return check_schema(document_, schema, json(value), where);
    std::uint64_t number = 0;
    const char* end = value.data() + value.size();
    const auto [stop, failure] = std::from_chars(value.data(), end, number);
    if (value.empty() || failure != std::errc() || stop != end)
        return error(Errc::kInvalidArgument, "{} is not a number", where);
    return check_schema(document_, schema, json(number), where);
}

Result<void> Routes::read_parameters(const Operation& operation, std::string_view query, Call& call) const {
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
        if (given == call.parameters.end() && !parameter.at("required").get<bool>()) continue;
        if (given == call.parameters.end())
            return error(Errc::kInvalidArgument, "the query parameter '{}' is missing",
                         parameter.at("name").get<std::string>());
        GN_TRY(check_parameter(parameter, given->second));
    }
    return {};
}

Response Routes::run(const Operation& operation, Call call, const Request& request) const {
    const bool wants_body = operation.spec->contains("requestBody");
    if (!wants_body && !request.body.empty())
        return error_response(400, "invalid_argument",
                              fmt::format("{} {} takes no body", operation.method, operation.path));
    if (wants_body) {
        const std::string type = request.content_type.substr(0, request.content_type.find(';'));
        if (type != "application/json")
            return error_response(
                415, "unsupported_media_type",
                fmt::format("the body must be application/json, not '{}'; send the header Content-Type",
                            type.substr(0, 64)));
        Result<json> body = parse_json(request.body);
        if (!body.ok()) return failed(body.error());
        const json& schema =
            operation.spec->at("requestBody").at("content").at("application/json").at("schema");
        if (Result<void> good = check_schema(document_, schema, *body, "the body"); !good.ok())
            return failed(good.error());
        call.body = std::move(body).value();
    }
    if (const auto refused = refuse_client(*operation.spec, call))
        return error_response(403, errc_name(Errc::kPermission), *refused);
    Result<json> answer = operation.handler(call);
    if (!answer.ok()) return failed(answer.error());
    const bool plain = answer->is_string();
    return Response{operation.success, plain ? "text/plain; version=0.0.4" : operation.content_type,
                    plain ? answer->get<std::string>() : dump(*answer), ""};
}

Response Routes::route(const Request& request, nvme::ClientId caller, std::string& counted_as) const {
    if (request.target.size() > kMaxTargetBytes)
        return error_response(414, "invalid_argument",
                              fmt::format("the target has more than {} bytes", kMaxTargetBytes));
    if (request.body.size() > kMaxBodyBytes)
        return error_response(
            413, "too_large",
            fmt::format("the body has {} bytes; at most {} are allowed", request.body.size(), kMaxBodyBytes));
    const std::string_view target = request.target;
    const auto mark = target.find('?');
    const std::string_view path = target.substr(0, mark);
    const std::string_view query =
        mark == std::string_view::npos ? std::string_view() : target.substr(mark + 1);
    if (path.empty() || path[0] != '/')
        return error_response(400, "invalid_argument", "the target is not a path that begins with '/'");
    const std::vector<std::string> segments = split(path.substr(1), '/');
    const std::string& method = request.method == "HEAD" ? "GET" : request.method;
    std::string allow;
    for (const Operation& operation : operations_) {
        if (operation.segments.size() != segments.size()) continue;
        Call call;
        call.caller = caller;
        bool fits = true;
        for (std::size_t i = 0; fits && i < segments.size(); ++i) {
            const auto decoded = decode(segments[i]);
            if (!decoded)
                return error_response(400, "invalid_argument", "the path holds a broken percent escape");
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
            error_response(405, "method_not_allowed", fmt::format("this resource allows only {}", allow));
        response.allow = allow;
        return response;
    }
    return error_response(404, "not_found",
                          "there is no such resource; GET /openapi.json describes all resources");
}

Response Routes::handle(const Request& request, std::string_view token) {
    std::string counted_as = "other";
    const std::string_view path = std::string_view(request.target).substr(0, request.target.find('?'));
    std::optional<Response> page =
        pages_ && request.target.size() <= kMaxTargetBytes ? pages_(request) : std::nullopt;
    const AccessHeaders headers{path, request.authorization, request.origin, page.has_value()};
    const Caller caller = judge_access(headers, token, generation_of_);
    std::optional<AccessRefusal> refused = caller.refused;
    Response response;
    if (!refused && page) {
        counted_as = path;
        response = std::move(*page);
    } else if (!refused) {
        response = route(request, caller.client, counted_as);
        // The client may have been removed or its token replaced meanwhile: the answer may hold the new keys,
        // which are not for the holder of the old token.
        if (caller.client != 0) refused = judge_access(headers, token, generation_of_).refused;
    }
    if (refused) {
        response = error_response(refused->status, errc_name(Errc::kPermission), refused->message);
        if (refused->status == 401) response.challenge = "Bearer realm=\"" + program_ + "\"";
    }
    const bool known = request.method == "GET" || request.method == "POST" || request.method == "DELETE" ||
                       request.method == "HEAD";
    const std::scoped_lock lock(mutex_);
    ++counts_[{counted_as, known ? request.method : "other", response.status}];
    return response;
}

Response Routes::refuse(int status, std::string_view code, std::string_view message) {
    const std::scoped_lock lock(mutex_);
    ++counts_[{"other", "other", status}];
    return error_response(status, code, message);
}

std::vector<std::string> Routes::operations() const {
    std::vector<std::string> ids;
    for (const Operation& operation : operations_) ids.push_back(operation.id);
    return ids;
}

RequestCounts Routes::counts() const {
    const std::scoped_lock lock(mutex_);
    return counts_;
}

}  // namespace gnstor::daemon
