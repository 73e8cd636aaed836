#include "nvmf/protocol/nqn.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace gnstor::nvmf {

std::string client_host_nqn(nvme::ClientId id) {
    return fmt::format("{}{}", kClientHostNqnPrefix, id);
}

std::string volume_subsystem_nqn(std::string_view volume) {
    return fmt::format("nqn.2026-11.io.gnstor:volume:{}", volume);
}

std::optional<nvme::ClientId> client_of_host_nqn(std::string_view nqn) {
    if (!nqn.starts_with(kClientHostNqnPrefix)) return std::nullopt;
    const std::string_view digits = nqn.substr(kClientHostNqnPrefix.size());
    // Canonical only: one client, one name. "+7", "07" and "7 " bind no client.
    if (digits.empty() || digits.size() > 5 || digits.front() == '0') return std::nullopt;
    std::uint32_t id = 0;
    const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), id);
    if (failure != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
    if (id == 0 || id > 0xFFFFu) return std::nullopt;
    return static_cast<nvme::ClientId>(id);
}

namespace {
constexpr std::string_view kSsdNqnPrefix = "nqn.2026-11.io.gnstor:ssd:";
}

bool is_ssd_subsystem(std::string_view nqn) {
    return nqn.substr(0, kSsdNqnPrefix.size()) == kSsdNqnPrefix && nqn.size() == kSsdNqnPrefix.size() + 36;
}

std::string ssd_subsystem_nqn(std::span<const std::uint8_t, 16> uuid) {
    std::string nqn(kSsdNqnPrefix);
    for (std::size_t i = 0; i < uuid.size(); ++i) {
        if (i == 4 || i == 6 || i == 8 || i == 10) nqn += '-';
        nqn += fmt::format("{:02x}", uuid[i]);
    }
    return nqn;
}

namespace {
bool is_digit(char c) {
    return c >= '0' && c <= '9';
}
}  // namespace

bool is_valid_nqn(std::string_view nqn) {
    // "nqn." year "-" month "." and at least one character of a domain or of nvmexpress' own names.
    if (nqn.size() < 13 || nqn.size() > kNqnBytesMax || !nqn.starts_with("nqn.")) return false;
    for (const std::size_t i : {4u, 5u, 6u, 7u, 9u, 10u})
        if (!is_digit(nqn[i])) return false;
    if (nqn[8] != '-' || nqn[11] != '.') return false;
    return std::none_of(nqn.begin(), nqn.end(), [](char c) {
        const auto byte = static_cast<unsigned char>(c);
        return byte < 0x20 || byte == 0x7F;
    });
}

std::optional<std::string_view> nqn_in_field(std::span<const char, kNqnFieldBytes> field) {
    const std::size_t length = strnlen(field.data(), field.size());
    if (length > kNqnBytesMax) return std::nullopt;
    const std::string_view nqn(field.data(), length);
    if (!is_valid_nqn(nqn)) return std::nullopt;
    return nqn;
}

bool put_nqn(std::span<char, kNqnFieldBytes> field, std::string_view nqn) {
    if (nqn.size() > kNqnBytesMax) return false;
    std::memset(field.data(), 0, field.size());
    std::memcpy(field.data(), nqn.data(), nqn.size());
    return true;
}

}  // namespace gnstor::nvmf
