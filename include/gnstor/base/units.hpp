// units.hpp: sizes, rates and times as people write and read them. Host code, pure.
#pragma once

#include <gnstor/base/result.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace gnstor {

/// "4096", "64KiB", "64 K", "1G", "1.5GiB", "2TB": bytes. K, M, G, T, P and KiB ... PiB are powers of 1024,
/// KB ... PB powers of 1000; either case; a fraction must come out as whole bytes. Errors: empty, negative,
/// unknown unit, beyond 2^63 - 1.
[[nodiscard]] Result<std::uint64_t> parse_bytes(std::string_view text);

/// "250ns", "50us", "20ms", "5s", "5m", "2h": nanoseconds; a unit is required (but for 0). Errors as
/// parse_bytes.
[[nodiscard]] Result<std::uint64_t> parse_duration_ns(std::string_view text);

/// "0 B", "512 B", "64 KiB", "1.50 GiB": powers of 1024.
[[nodiscard]] std::string format_bytes(std::uint64_t bytes);
/// "12.1 GB/s": powers of 1000, as links are sold.
[[nodiscard]] std::string format_rate(double bytes_per_second);
/// "850 IOPS", "12.5 kIOPS", "3.20 MIOPS".
[[nodiscard]] std::string format_iops(double operations_per_second);
/// "32 ns", "6.50 us", "1.20 ms", "3.00 s".
[[nodiscard]] std::string format_duration_ns(std::uint64_t ns);
/// "1,234,567".
[[nodiscard]] std::string format_count(std::uint64_t n);
/// "1 store", "2 stores".
[[nodiscard]] std::string counted(std::uint64_t n, std::string_view thing);

}  // namespace gnstor
