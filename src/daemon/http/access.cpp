#include "daemon/http/access.hpp"

#include "daemon/http/client_token.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>

namespace gnstor::daemon {
namespace {

constexpr std::size_t kShortest = 16, kLongest = 256;
constexpr std::string_view kScheme = "bearer ";

/// The text after "Bearer " (case-insensitive); empty for any other scheme.
std::string_view bearer(std::string_view authorization) {
    if (authorization.size() <= kScheme.size()) return {};
    for (std::size_t i = 0; i < kScheme.size(); ++i)
        if (std::tolower(static_cast<unsigned char>(authorization[i])) != kScheme[i]) return {};
    authorization.remove_prefix(kScheme.size());
    while (!authorization.empty() && authorization.front() == ' ') authorization.remove_prefix(1);
    while (!authorization.empty() && authorization.back() == ' ') authorization.remove_suffix(1);
    return authorization;
}

}  // namespace

bool same_secret(std::string_view a, std::string_view b) {
    if (a.size() != b.size()) return false;  // the length is not secret
    unsigned difference = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
        difference |=
            static_cast<unsigned>(static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]));
    return difference == 0;
}

bool is_token(std::string_view text) {
    const auto good = [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
               std::string_view("-._~+/=").find(c) != std::string_view::npos;
    };
    return text.size() >= kShortest && text.size() <= kLongest && std::all_of(text.begin(), text.end(), good);
}

Caller judge_access(const AccessHeaders& headers, std::string_view token, const GenerationOf& generation_of) {
    // Browsers fetch the modules of a page with the Origin of that page.
    if (headers.no_data) return {};
    // An Origin header shows that a page in a browser sends the request. All of these are refused: a page
    // that a user visits must not be able to manage an array that this machine can reach.
    if (!headers.origin.empty())
        return {AccessRefusal{403,
                              "this interface refuses requests of web pages in a browser (the request has an "
                              "Origin header)"}};
    if (token.empty() || headers.path == "/healthz") return {};
    const std::string_view given = bearer(headers.authorization);
    if (given.empty())
        return {AccessRefusal{
            401,
            "a token is required: send 'Authorization: Bearer TOKEN' with the contents of the daemon's token "
            "file (gnstord.token in its folder, gateway.token of a gateway; gnstor takes --token-file)"}};
    if (same_secret(given, token)) return {};
    const std::optional<ClientClaim> claim = generation_of ? read_client_token(given) : std::nullopt;
    if (!claim)
        return {AccessRefusal{401,
                              "the token is wrong; copy the daemon's token file again (gnstord.token in its "
                              "folder, gateway.token of a gateway)"}};
    // Forged tokens are refused first: only the holder of a token that was valid learns the client's id.
    if (is_client_token(given, token, *claim) && generation_of(claim->client) == claim->generation)
        return {std::nullopt, claim->client};
    return {AccessRefusal{
        401, fmt::format("this token of client {} is not valid: the client was removed, or its token was "
                         "replaced; ask the administrator of the array for another ('gnstor client "
                         "add' shows it)",
                         claim->client)}};
}

}  // namespace gnstor::daemon
