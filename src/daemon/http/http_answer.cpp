#include "daemon/http/http_answer.hpp"

#include <fmt/format.h>

#include <iterator>
#include <utility>

namespace gnstor::daemon {
namespace {

constexpr std::pair<int, std::string_view> kReasons[] = {{200, "OK"},
                                                         {201, "Created"},
                                                         {302, "Found"},
                                                         {400, "Bad Request"},
                                                         {401, "Unauthorized"},
                                                         {403, "Forbidden"},
                                                         {404, "Not Found"},
                                                         {405, "Method Not Allowed"},
                                                         {408, "Request Timeout"},
                                                         {409, "Conflict"},
                                                         {411, "Length Required"},
                                                         {413, "Content Too Large"},
                                                         {414, "URI Too Long"},
                                                         {415, "Unsupported Media Type"},
                                                         {500, "Internal Server Error"},
                                                         {501, "Not Implemented"},
                                                         {503, "Service Unavailable"},
                                                         {504, "Gateway Timeout"},
                                                         {507, "Insufficient Storage"}};

/// The reason phrase; may be empty (RFC 9112, 4).
std::string_view reason(int status) {
    for (const auto& [known, text] : kReasons)
        if (known == status) return text;
    return {};
}

}  // namespace

std::string http_answer(const Response& response, bool with_body, std::string_view keep_alive) {
    std::string out =
        fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n", response.status,
                    reason(response.status), response.content_type, response.body.size());
    const auto header = [&](std::string_view name, std::string_view value) {
        if (!value.empty()) fmt::format_to(std::back_inserter(out), "{}: {}\r\n", name, value);
    };
    header("Allow", response.allow);
    header("WWW-Authenticate", response.challenge);
    header("Retry-After", response.status == 503 ? "1" : "");
    for (const auto& [name, value] : response.headers) header(name, value);
    header("Keep-Alive", keep_alive);
    header("Connection", keep_alive.empty() ? "close" : "keep-alive");
    out += "\r\n";
    if (with_body) out += response.body;
    return out;
}

}  // namespace gnstor::daemon
