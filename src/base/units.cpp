// units.cpp: reading and printing of sizes, rates and times; integer arithmetic where exactness matters.
#include <gnstor/base/units.hpp>

#include <cctype>
#include <cmath>
#include <limits>

namespace gnstor {
namespace {

struct Unit {
    std::string_view name;  // lower case
    std::uint64_t factor;
};

constexpr Unit kByteUnits[] = {
    {"", 1},
    {"b", 1},
    {"k", 1ull << 10},
    {"kib", 1ull << 10},
    {"kb", 1'000ull},
    {"m", 1ull << 20},
    {"mib", 1ull << 20},
    {"mb", 1'000'000ull},
    {"g", 1ull << 30},
    {"gib", 1ull << 30},
    {"gb", 1'000'000'000ull},
    {"t", 1ull << 40},
    {"tib", 1ull << 40},
    {"tb", 1'000'000'000'000ull},
    {"p", 1ull << 50},
    {"pib", 1ull << 50},
    {"pb", 1'000'000'000'000'000ull},
};

constexpr Unit kTimeUnits[] = {
    {"ns", 1},
    {"us", 1'000},
    {"ms", 1'000'000},
    {"s", 1'000'000'000},
    {"m", 60'000'000'000},
    {"min", 60'000'000'000},
    {"h", 3'600'000'000'000},
};

constexpr std::uint64_t kLargest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
constexpr std::size_t kFractionDigitsMax = 9;

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0)
        text.remove_prefix(1);
    while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.remove_suffix(1);
    return text;
}

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

std::string lower(std::string_view text) {
    std::string out(text);
    for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return out;
}

// A number split at its decimal point, and the unit after it.
struct Quantity {
    unsigned __int128 whole = 0;
    std::uint64_t fraction = 0;        // of `fraction_scale`
    std::uint64_t fraction_scale = 1;  // 10^digits
    std::string unit;
};

Result<Quantity> split(std::string_view text, std::string_view kind) {
    const std::string_view shown = text.substr(0, 64);
    std::string_view rest = trimmed(text);
    if (rest.empty()) return error(Errc::kInvalidArgument, "an empty text is not a {}", kind);
    if (rest.front() == '-')
        return error(Errc::kInvalidArgument, "'{}': a {} cannot be negative", shown, kind);
    Quantity q;
    std::size_t i = 0;
    for (; i < rest.size() && is_digit(rest[i]); ++i) {
        q.whole = q.whole * 10 + static_cast<unsigned>(rest[i] - '0');
        if (q.whole > kLargest)
            return error(Errc::kInvalidArgument, "'{}' is too large for a {}", shown, kind);
    }
    if (i == 0)
        return error(Errc::kInvalidArgument, "'{}' is not a {}: it must begin with a digit", shown, kind);
    if (i < rest.size() && rest[i] == '.') {
        const std::size_t first = ++i;
        for (; i < rest.size() && is_digit(rest[i]); ++i) {
            if (i - first >= kFractionDigitsMax)
                return error(Errc::kInvalidArgument, "'{}': at most {} digits after the point", shown,
                             kFractionDigitsMax);
            q.fraction = q.fraction * 10 + static_cast<unsigned>(rest[i] - '0');
            q.fraction_scale *= 10;
        }
        if (i == first) return error(Errc::kInvalidArgument, "'{}': digits must follow the point", shown);
    }
    q.unit = lower(trimmed(rest.substr(i)));
    return q;
}

template <std::size_t N>
Result<std::uint64_t> scale(const Quantity& q, const Unit (&units)[N], std::string_view text,
                            std::string_view kind, std::string_view known) {
    for (const Unit& unit : units) {
        if (unit.name != q.unit) continue;
        const unsigned __int128 part = static_cast<unsigned __int128>(q.fraction) * unit.factor;
        if (part % q.fraction_scale != 0)
            return error(Errc::kInvalidArgument, "'{}' is not a whole number of the smallest unit",
                         text.substr(0, 64));
        const unsigned __int128 value = q.whole * unit.factor + part / q.fraction_scale;
        if (value > kLargest)
            return error(Errc::kInvalidArgument, "'{}' is too large for a {}", text.substr(0, 64), kind);
        return static_cast<std::uint64_t>(value);
    }
    return error(Errc::kInvalidArgument, "'{}': unknown unit '{}'; use {}", text.substr(0, 64),
                 std::string_view(q.unit).substr(0, 32), known);
}

std::string with_digits(double value, std::string_view unit) {
    if (value < 10) return fmt::format("{:.2f} {}", value, unit);
    if (value < 100) return fmt::format("{:.1f} {}", value, unit);
    return fmt::format("{:.0f} {}", value, unit);
}

// Picks the largest unit that leaves at least 1, minding that 999.6 would print as 1000.
template <std::size_t N>
std::string in_steps(double value, double step, const char* const (&names)[N]) {
    if (!std::isfinite(value) || value < 0) return fmt::format("? {}", names[0]);
    std::size_t i = 0;
    while (i + 1 < N && std::round(value) >= step) {
        value /= step;
        ++i;
    }
    if (i == 0) return fmt::format("{:.0f} {}", value, names[0]);
    return with_digits(value, names[i]);
}

}  // namespace

Result<std::uint64_t> parse_bytes(std::string_view text) {
    GN_ASSIGN(const Quantity q, split(text, "size"));
    return scale(q, kByteUnits, text, "size", "B, K, M, G, T, P (1024), KiB ... PiB or KB ... PB (1000)");
}

Result<std::uint64_t> parse_duration_ns(std::string_view text) {
    GN_ASSIGN(const Quantity q, split(text, "duration"));
    if (q.unit.empty() && q.whole == 0 && q.fraction == 0) return std::uint64_t{0};
    return scale(q, kTimeUnits, text, "duration", "ns, us, ms, s, m or h");
}

std::string format_bytes(std::uint64_t bytes) {
    constexpr const char* kNames[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    for (std::size_t i = std::size(kNames) - 1; i > 0; --i) {
        const std::uint64_t unit = 1ull << (10 * i);
        if (bytes >= unit && bytes % unit == 0) return fmt::format("{} {}", bytes / unit, kNames[i]);
    }
    return in_steps(static_cast<double>(bytes), 1024, kNames);
}

std::string format_rate(double bytes_per_second) {
    constexpr const char* kNames[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
    return in_steps(bytes_per_second, 1000, kNames);
}

std::string format_iops(double operations_per_second) {
    constexpr const char* kNames[] = {"IOPS", "kIOPS", "MIOPS", "GIOPS"};
    return in_steps(operations_per_second, 1000, kNames);
}

std::string format_duration_ns(std::uint64_t ns) {
    constexpr const char* kNames[] = {"ns", "us", "ms", "s"};
    return in_steps(static_cast<double>(ns), 1000, kNames);
}

std::string format_count(std::uint64_t n) {
    std::string text = std::to_string(n);
    for (std::size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, 1, ',');
    return text;
}

std::string counted(std::uint64_t n, std::string_view thing) {
    return fmt::format("{} {}{}", n, thing, n == 1 ? "" : "s");
}

}  // namespace gnstor
