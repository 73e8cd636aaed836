// uuid.cpp: making, reading and printing UUIDs (RFC 9562, 4 and 5.4).
#include <gnstor/base/uuid.hpp>

#include "base/random.hpp"

#include <span>

namespace gnstor {
namespace {

int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

constexpr bool is_dash_position(std::size_t i) {
    return i == 8 || i == 13 || i == 18 || i == 23;
}

}  // namespace

Uuid Uuid::random() {
    Uuid uuid;
    fill_random(std::as_writable_bytes(std::span(uuid.bytes)));
    uuid.bytes[6] = static_cast<std::uint8_t>((uuid.bytes[6] & 0x0F) | 0x40);  // version 4
    uuid.bytes[8] = static_cast<std::uint8_t>((uuid.bytes[8] & 0x3F) | 0x80);  // variant 10
    return uuid;
}

Result<Uuid> Uuid::parse(std::string_view text) {
    const auto refuse = [&] {
        return error(Errc::kInvalidArgument, "'{}' is no UUID; expected 8-4-4-4-12 hexadecimal digits",
                     text.substr(0, 64));
    };
    if (text.size() != 36) return refuse();
    Uuid uuid;
    std::size_t nibble = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (is_dash_position(i)) {
            if (text[i] != '-') return refuse();
            continue;
        }
        const int digit = hex_digit(text[i]);
        if (digit < 0) return refuse();
        auto& byte = uuid.bytes[nibble / 2];
        byte = static_cast<std::uint8_t>((byte << 4) | digit);
        ++nibble;
    }
    return uuid;
}

std::string Uuid::to_string() const {
    constexpr char kDigits[] = "0123456789abcdef";
    std::string text(36, '-');
    std::size_t nibble = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (is_dash_position(i)) continue;
        const std::uint8_t byte = bytes[nibble / 2];
        text[i] = kDigits[nibble % 2 == 0 ? byte >> 4 : byte & 15];
        ++nibble;
    }
    return text;
}

}  // namespace gnstor
