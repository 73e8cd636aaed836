// profile.cpp: reads the keys of a profile; one function per kind of object.
#include "embedded/profile.hpp"

#include "embedded/json_lines.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <sstream>

namespace gnstor::embedded {

namespace {

constexpr std::uintmax_t kLargestFile = 1u << 20;

/// One object of a profile, with its path for errors: "drive.read[1]".
class Section {
  public:
    Section(const JsonValue& value, std::string file, std::string path)
        : value_(value), file_(std::move(file)), path_(std::move(path)) {}

    template <class... Args>
    [[nodiscard]] Error wrong(std::uint32_t line, std::string_view key, fmt::format_string<Args...> text,
                              Args&&... args) const {
        return error(Errc::kInvalidArgument, "{}:{}: {}: {}", file_, line, path_of(key),
                     fmt::format(text, std::forward<Args>(args)...));
    }
    [[nodiscard]] std::uint32_t line() const { return value_.line; }
    [[nodiscard]] const JsonValue* find(std::string_view key) const {
        const auto it = std::ranges::find_if(value_.members, [&](const auto& m) { return m.name == key; });
        return it == value_.members.end() ? nullptr : &it->value;
    }
    /// Fails unless the value is an object with no other keys.
    Result<void> allow(std::initializer_list<std::string_view> keys) const {
        if (value_.kind != JsonValue::Kind::kObject) return wrong(line(), "", "should be an object {{ … }}");
        for (const auto& [name, member] : value_.members)
            if (std::ranges::find(keys, name) == keys.end())
                return wrong(member.line, name, "unknown key; known here: {}", fmt::join(keys, ", "));
        return {};
    }
    Result<const JsonValue*> need(std::string_view key, JsonValue::Kind kind, const char* what) const {
        const JsonValue* found = find(key);
        if (found == nullptr) return wrong(line(), key, "is missing; give {}", what);
        if (found->kind != kind) return wrong(found->line, key, "should be {}", what);
        return found;
    }
    Result<double> number(std::string_view key, double least, double most) const {
        GN_ASSIGN(const JsonValue* const found, need(key, JsonValue::Kind::kNumber, "a number"));
        if (!(found->number >= least) || !(found->number <= most))
            return wrong(found->line, key, "is {:g}; give {:g} to {:g}", found->number, least, most);
        return found->number;
    }
    template <class Integer>
    Result<void> integer(std::string_view key, Integer& into, double least, double most) const {
        GN_ASSIGN(const double value, number(key, least, most));
        if (value != std::floor(value))
            return wrong(find(key)->line, key, "is {:g}; give a whole number", value);
        into = static_cast<Integer>(value);
        return {};
    }
    [[nodiscard]] Section section(const JsonValue& value, const std::string& key) const {
        return {value, file_, path_of(key)};
    }

  private:
    [[nodiscard]] std::string path_of(std::string_view key) const {
        if (key.empty()) return path_.empty() ? "the profile" : path_;
        return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
    }

    const JsonValue& value_;
    const std::string file_, path_;
};

constexpr double kMostNs = 1e9;
constexpr double kMostRate = 1e13;

Result<ssd::SizePoint> read_point(const Section& s) {
    GN_TRY(s.allow({"bytes", "operations_per_s", "bytes_per_s", "latency_ns"}));
    ssd::SizePoint point{};
    GN_TRY(s.integer("bytes", point.bytes, 512, 1u << 30));
    GN_TRY(s.integer("latency_ns", point.latency_ns, 1, kMostNs));
    const bool operations = s.find("operations_per_s") != nullptr, bytes = s.find("bytes_per_s") != nullptr;
    if (operations == bytes)
        return s.wrong(s.line(), "", "give one of operations_per_s and bytes_per_s{}",
                       bytes ? ", not both" : "");
    if (operations) {
        GN_ASSIGN(point.per_second, s.number("operations_per_s", 1, 1e9));
    } else {
        GN_ASSIGN(const double rate,
                  s.number("bytes_per_s", point.bytes, std::min(kMostRate, 1e9 * point.bytes)));
        point.per_second = rate / point.bytes;
    }
    return point;
}

Result<std::vector<ssd::SizePoint>> read_points(const Section& drive, const std::string& key) {
    GN_ASSIGN(const JsonValue* const list, drive.need(key, JsonValue::Kind::kArray, "an array of sizes"));
    if (list->members.empty()) return drive.wrong(list->line, key, "is empty; give at least one size");
    std::vector<ssd::SizePoint> points;
    for (std::size_t i = 0; i < list->members.size(); ++i) {
        const JsonValue& each = list->members[i].value;
        GN_ASSIGN(const ssd::SizePoint point, read_point(drive.section(each, fmt::format("{}[{}]", key, i))));
        if (i != 0 && point.bytes <= points.back().bytes)
            return drive.wrong(each.line, fmt::format("{}[{}].bytes", key, i),
                               "is {}, after {}; sizes must ascend", point.bytes, points.back().bytes);
        points.push_back(point);
    }
    return Result<std::vector<ssd::SizePoint>>(std::move(points));
}

Result<ssd::DriveTiming> read_drive(const Section& s) {
    GN_TRY(s.allow({"firmware_ns", "channels", "dies_per_channel", "stripe_bytes", "read_die_ns",
                    "program_die_ns", "channel_bytes_per_s", "read", "write"}));
    ssd::DriveTiming t;
    GN_TRY(s.integer("firmware_ns", t.firmware_ns, 0, kMostNs));
    GN_TRY(s.integer("channels", t.channels, 1, 1024));
    GN_TRY(s.integer("dies_per_channel", t.dies_per_channel, 1, 1024));
    GN_TRY(s.integer("stripe_bytes", t.stripe_bytes, 4096, 1u << 20));
    GN_TRY(s.integer("read_die_ns", t.read_die_ns, 0, kMostNs));
    GN_TRY(s.integer("program_die_ns", t.program_die_ns, 0, kMostNs));
    GN_ASSIGN(t.channel_bytes_per_second, s.number("channel_bytes_per_s", 1e6, kMostRate));
    GN_ASSIGN(t.read, read_points(s, "read"));
    GN_ASSIGN(t.write, read_points(s, "write"));
    if (const Result<void> good = ssd::check(t); !good.ok())
        return s.wrong(s.line(), "", "{}", good.error().message);
    return Result<ssd::DriveTiming>(std::move(t));
}

Result<rdma::LinkDirection> read_direction(const Section& network, const std::string& key) {
    GN_ASSIGN(const JsonValue* const value, network.need(key, JsonValue::Kind::kObject, "an object"));
    const Section s = network.section(*value, key);
    GN_TRY(s.allow({"bytes_per_s", "one_way_ns"}));
    rdma::LinkDirection d;
    GN_ASSIGN(d.bytes_per_second, s.number("bytes_per_s", 1e6, kMostRate));
    GN_TRY(s.integer("one_way_ns", d.latency_ns, 0, kMostNs));
    return d;
}

Result<rdma::LinkTiming> read_network(const Section& s) {
    GN_TRY(s.allow({"to_node", "from_node"}));
    rdma::LinkTiming t;
    GN_ASSIGN(t.to_node, read_direction(s, "to_node"));
    GN_ASSIGN(t.from_node, read_direction(s, "from_node"));
    if (const Result<void> good = rdma::check(t); !good.ok())
        return s.wrong(s.line(), "", "{}", good.error().message);
    return t;
}

}  // namespace

Result<Profile> parse_profile(std::string_view text, const std::string& file) {
    GN_ASSIGN(const JsonValue root, parse_json_lines(text, file));
    const Section s(root, file, "");
    GN_TRY(s.allow({"name", "drive", "network"}));
    Profile profile;
    GN_ASSIGN(const JsonValue* const name, s.need("name", JsonValue::Kind::kString, "a name"));
    if (name->string.empty()) return s.wrong(name->line, "name", "is empty");
    profile.name = name->string;
    if (const JsonValue* const drive = s.find("drive")) {
        GN_ASSIGN(profile.drive, read_drive(s.section(*drive, "drive")));
    }
    if (const JsonValue* const network = s.find("network")) {
        GN_ASSIGN(profile.network, read_network(s.section(*network, "network")));
    }
    return Result<Profile>(std::move(profile));
}

Result<Profile> load_profile(const std::string& name_or_file) {
    const bool is_file = name_or_file.find('/') != std::string::npos || name_or_file.ends_with(".json");
    if (!is_file) {
        std::vector<std::string_view> names;
        for (const BuiltInProfile& each : built_in_profiles()) {
            if (each.name == name_or_file) return parse_profile(each.text, name_or_file + ".json");
            names.push_back(each.name);
        }
        return error(
            Errc::kInvalidArgument,
            "there is no profile \"{}\"; choose one of {}, or name a file (with a slash, or ending in .json)",
            name_or_file, fmt::join(names, ", "));
    }
    std::error_code failed;
    const std::uintmax_t bytes = std::filesystem::file_size(name_or_file, failed);
    if (failed)
        return error(Errc::kNotFound, "the profile {} cannot be read: {}", name_or_file, failed.message());
    if (bytes > kLargestFile)
        return error(Errc::kInvalidArgument, "{} has {} bytes; no profile is that large", name_or_file,
                     bytes);
    std::ifstream in(name_or_file);
    std::ostringstream text;
    text << in.rdbuf();
    if (!in) return error(Errc::kIo, "the profile {} cannot be read", name_or_file);
    return parse_profile(text.str(), name_or_file);
}

}  // namespace gnstor::embedded
