// uuid.hpp: 128-bit identifiers of SSDs, hosts and arrays. RFC 9562. Host code.
#pragma once

#include <gnstor/base/result.hpp>

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace gnstor {

struct Uuid {
    std::array<std::uint8_t, 16> bytes{};  ///< as printed, first byte first (network order)

    /// Version 4 (RFC 9562, 5.4), from the kernel's random source.
    [[nodiscard]] static Uuid random();
    /// "f81d4fae-7dec-11d0-a765-00a0c91e6bf6", either case; any version.
    [[nodiscard]] static Result<Uuid> parse(std::string_view text);
    /// Lower case, 36 characters.
    [[nodiscard]] std::string to_string() const;
    [[nodiscard]] bool is_nil() const noexcept { return *this == Uuid{}; }

    friend auto operator<=>(const Uuid&, const Uuid&) = default;
};
static_assert(sizeof(Uuid) == 16, "a UUID is 16 bytes on the wire");

}  // namespace gnstor
