#include "daemon/http/access.hpp"

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

std::optional<AccessRefusal> refuse_access(std::string_view path, std::string_view authorization,
                                           std::string_view origin, std::string_view token) {
    // An Origin header shows that a page in a browser sends the request. All of these are refused: a page
    // that a user visits must not be able to manage an array that this machine can reach.
    if (!origin.empty())
        return AccessRefusal{
            403,
            "this interface refuses requests of web pages in a browser (the request has an Origin header)"};
    if (token.empty() || path == "/healthz") return std::nullopt;
    const std::string_view given = bearer(authorization);
    if (given.empty())
        return AccessRefusal{
            401,
            "a token is required: send 'Authorization: Bearer TOKEN' with the contents of the daemon's token "
            "file (gnstord.token in its folder, gateway.token of a gateway; gnstor takes --token-file)"};
    if (!same_secret(given, token))
        return AccessRefusal{401,
                             "the token is wrong; copy the daemon's token file again (gnstord.token in its "
                             "folder, gateway.token of a gateway)"};
    return std::nullopt;
}

}  // namespace gnstor::daemon
