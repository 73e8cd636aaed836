#include "daemon/http/request_parser.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <utility>

namespace gnstor::daemon {
namespace {

constexpr std::string_view kNoRequest = "this is not an HTTP request";
/// Headers that may occur once: the service evaluates them, or they determine where a request ends.
constexpr std::array<std::string_view, 4> kOnce{"Content-Length", "Content-Type", "Authorization", "Origin"};

bool takes_body(std::string_view method) {
    return method == "POST" || method == "PUT" || method == "PATCH" || method == "DELETE";
}

/// A token of RFC 9110, 5.6.2.
bool is_http_token(std::string_view text) {
    constexpr std::string_view kOthers = "!#$%&'*+-.^_`|~";
    return !text.empty() && std::all_of(text.begin(), text.end(), [=](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
               kOthers.find(c) != std::string_view::npos;
    });
}

/// No control characters except tab: none that could pass for the end of a line or of a string.
bool is_printable(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) {
        return (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) || c == '\t';
    });
}

/// Case-insensitive for ASCII only, in any locale.
bool same_name(std::string_view a, std::string_view b) {
    const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [=](char x, char y) { return lower(x) == lower(y); });
}

std::string_view trimmed(std::string_view text) {
    const std::size_t first = text.find_first_not_of(" \t");
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// Whether a comma-separated list (RFC 9110, 5.6.1) contains a token.
bool lists(std::string_view list, std::string_view token) {
    for (;;) {
        const std::size_t comma = list.find(',');
        if (same_name(trimmed(list.substr(0, comma)), token)) return true;
        if (comma == std::string_view::npos) return false;
        list.remove_prefix(comma + 1);
    }
}

std::optional<std::uint64_t> number(std::string_view text) {
    std::uint64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, failure] = std::from_chars(text.data(), end, value);
    if (text.empty() || failure != std::errc() || stop != end) return std::nullopt;
    return value;
}

}  // namespace

RequestParser::State RequestParser::refuse(int status, std::string_view code, std::string message) {
    refusal_ = HttpRefusal{status, std::string(code), std::move(message)};
    return state_ = State::kRefused;
}

RequestParser::State RequestParser::look(std::string_view bytes) {
    while (state_ == State::kMore && head_bytes_ == 0) {
        const std::size_t end = bytes.find('\n', searched_);
        const std::size_t line_bytes = (end == std::string_view::npos ? bytes.size() : end + 1) - line_;
        if (line_bytes > kMaxHeadLineBytes)
            return refuse(
                line_ == 0 ? 414 : 400, "invalid_argument",
                fmt::format("a line of the request's head has more than {} bytes", kMaxHeadLineBytes));
        if (line_ + line_bytes > kMaxHeadBytes)
            return refuse(400, "invalid_argument",
                          fmt::format("the request's head has more than {} bytes", kMaxHeadBytes));
        if (end == std::string_view::npos) {
            searched_ = bytes.size();
            return state_;
        }
        const std::string_view line = bytes.substr(line_, line_bytes);
        searched_ = end + 1;
        if (line.size() == 2 && line_ != 0 && line[0] == '\r') {
            head_bytes_ = end + 1;
        } else {
            take_line(line);
        }
        line_ = end + 1;
    }
    if (state_ == State::kMore && bytes.size() - head_bytes_ >= body_bytes_) state_ = State::kWhole;
    return state_;
}

void RequestParser::take_line(std::string_view line) {
    const std::string_view text = line.substr(0, line.size() - std::min<std::size_t>(line.size(), 2));
    if (line.size() < 2 || line[line.size() - 2] != '\r' || !is_printable(text))
        return void(
            refuse(400, "invalid_argument",
                   "a line of the request's head does not end with CR LF, or has control characters in it"));
    if (line_ == 0) return take_request_line(text);
    // A blank at the line's start (a folded line) or before the colon counts as part of the name, which is
    // then no token.
    const std::size_t colon = text.find(':');
    if (colon == std::string_view::npos || !is_http_token(text.substr(0, colon)))
        return void(refuse(400, "invalid_argument", "a line of the request's head is not 'name: value'"));
    return take_header(text.substr(0, colon), trimmed(text.substr(colon + 1)));
}

void RequestParser::take_request_line(std::string_view line) {
    const std::size_t first = line.find(' '), last = line.rfind(' ');
    if (first == std::string_view::npos || first == last)
        return void(refuse(400, "invalid_argument", std::string(kNoRequest)));
    const std::string_view target = line.substr(first + 1, last - first - 1), version = line.substr(last + 1);
    request_.method = line.substr(0, first);
    request_.target = target;
    later_than_1_0_ = version == "HTTP/1.1";
    takes_body_ = takes_body(request_.method);
    // A client must not send a fragment ('#') (RFC 9112, 3.2), and some parsers cut it off.
    if (!is_http_token(request_.method) || target.empty() ||
        target.find_first_of(" \t#") != std::string_view::npos || (!later_than_1_0_ && version != "HTTP/1.0"))
        return void(refuse(400, "invalid_argument", std::string(kNoRequest)));
}

void RequestParser::take_header(std::string_view name, std::string_view value) {
    if (same_name(name, "Transfer-Encoding"))
        return void(refuse(411, "invalid_argument",
                           "a body needs Content-Length; Transfer-Encoding is not supported"));
    if (same_name(name, "Expect")) wants_continue_ = later_than_1_0_ && same_name(value, "100-continue");
    if (same_name(name, "Connection")) {
        closes_ = closes_ || lists(value, "close");
        keeps_alive_ = keeps_alive_ || lists(value, "keep-alive");
    }
    const auto* const known =
        std::find_if(kOnce.begin(), kOnce.end(), [=](std::string_view one) { return same_name(name, one); });
    if (known == kOnce.end()) return;
    const auto which = static_cast<std::size_t>(known - kOnce.begin());
    if (std::exchange(has_[which], true))
        return void(refuse(400, "invalid_argument", fmt::format("the request has more than one {}", *known)));
    if (which == 0) return take_length(value);
    const std::array values{&request_.content_type, &request_.authorization, &request_.origin};
    *values[which - 1] = value;
}

void RequestParser::take_length(std::string_view value) {
    const std::optional<std::uint64_t> length = number(value);
    if (!length) return void(refuse(400, "invalid_argument", "Content-Length is not a number"));
    if (*length > kMaxBodyBytes)
        return void(
            refuse(413, "too_large",
                   fmt::format("the body has {} bytes; at most {} are allowed", *length, kMaxBodyBytes)));
    if (*length != 0 && !takes_body_)
        return void(refuse(400, "invalid_argument", fmt::format("{} takes no body", request_.method)));
    body_bytes_ = *length;
}

}  // namespace gnstor::daemon
