#include "daemon/http/client_token.hpp"

#include "daemon/http/access.hpp"
#include "nvmf/auth/dhchap_crypto.hpp"

#include <fmt/core.h>

#include <array>
#include <charconv>

namespace gnstor::daemon {
namespace {

constexpr std::string_view kForm = "gnc1.";
constexpr std::string_view kPurpose{"client token\0", 13};

/// RFC 4648, 5, without padding.
std::string base64url(std::span<const std::byte> bytes) {
    constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    std::string out;
    std::uint32_t pending = 0;
    int bits = 0;
    for (const std::byte byte : bytes) {
        pending = pending << 8 | std::to_integer<std::uint32_t>(byte);
        for (bits += 8; bits >= 6; bits -= 6) out += kDigits[pending >> (bits - 6) & 63];
    }
    if (bits != 0) out += kDigits[pending << (6 - bits) & 63];
    return out;
}

/// Takes a canonical decimal, not 0, and the dot behind it from the front of `text`.
template <class Number>
std::optional<Number> take_number(std::string_view& text) {
    Number value = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
    const auto length = static_cast<std::size_t>(end - text.data());
    if (failed != std::errc() || value == 0 || text.front() == '0' || length >= text.size() || *end != '.')
        return std::nullopt;
    text.remove_prefix(length + 1);
    return value;
}

}  // namespace

Result<std::string> make_client_token(std::string_view secret, const ClientClaim& claim) {
    const std::array<std::byte, 6> claimed{
        std::byte(claim.client & 0xFF),           std::byte(claim.client >> 8),
        std::byte(claim.generation & 0xFF),       std::byte(claim.generation >> 8 & 0xFF),
        std::byte(claim.generation >> 16 & 0xFF), std::byte(claim.generation >> 24)};
    GN_ASSIGN(const nvmf::auth::Secret proof,
              nvmf::auth::hmac(nvmf::auth::HashId::kSha256, nvmf::auth::bytes_of(secret),
                               {nvmf::auth::bytes_of(kPurpose), claimed}));
    return fmt::format("{}{}.{}.{}", kForm, claim.client, claim.generation, base64url(proof.view()));
}

std::optional<ClientClaim> read_client_token(std::string_view text) {
    if (!text.starts_with(kForm)) return std::nullopt;
    text.remove_prefix(kForm.size());
    const auto client = take_number<nvme::ClientId>(text);
    if (!client) return std::nullopt;
    const auto generation = take_number<std::uint32_t>(text);
    if (!generation) return std::nullopt;
    return ClientClaim{*client, *generation};
}

bool is_client_token(std::string_view text, std::string_view secret, const ClientClaim& claim) {
    const Result<std::string> good = make_client_token(secret, claim);
    return good.ok() && same_secret(text, *good);
}

}  // namespace gnstor::daemon
