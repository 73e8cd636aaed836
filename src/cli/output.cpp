#include "cli/output.hpp"

#include <gnstor/base/units.hpp>

#include "daemon/api_json.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace gnstor::cli {

std::string table(const std::vector<std::string>& heading, const std::vector<std::vector<std::string>>& rows,
                  const std::vector<bool>& right) {
    std::vector<std::size_t> width(heading.size());
    for (std::size_t c = 0; c < heading.size(); ++c) {
        width[c] = heading[c].size();
        for (const auto& row : rows) width[c] = std::max(width[c], row[c].size());
    }
    const auto line = [&](const std::vector<std::string>& cells) {
        std::string text;
        for (std::size_t c = 0; c < cells.size(); ++c) {
            if (c > 0) text += "  ";
            if (right[c])
                text += fmt::format("{:>{}}", cells[c], width[c]);
            else
                text += c + 1 == cells.size() ? cells[c] : fmt::format("{:<{}}", cells[c], width[c]);
        }
        return text + "\n";
    };
    std::string text = line(heading);
    for (const auto& row : rows) text += line(row);
    return text;
}

void Output::document(const nlohmann::json& value) const {
    if (json) fmt::print("{}\n", value.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

void Output::text(const std::string& lines) const {
    if (!json) fmt::print("{}", lines);
}

int Output::fail(const Error& e) const {
    std::fflush(stdout);  // what was shown before comes before
    const nlohmann::json value{
        {"error", {{"code", std::string(daemon::errc_name(e.code))}, {"message", e.message}}}};
    if (json)
        fmt::print(stderr, "{}\n", value.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    else
        fmt::print(stderr, "gnstor: {}\n", e.message);
    return kFailed;
}

ProgressLine::ProgressLine(std::string what, std::uint64_t total)
    : what_(std::move(what)),
      total_(total),
      terminal_(::isatty(2) == 1),
      started_(std::chrono::steady_clock::now()),
      last_(started_) {}

ProgressLine::~ProgressLine() {
    if (drawn_) fmt::print(stderr, "\r\x1b[K");
}

void ProgressLine::at(std::uint64_t bytes) {
    const auto now = std::chrono::steady_clock::now();
    if (!terminal_ || now - last_ < std::chrono::milliseconds(100)) return;
    last_ = now;
    drawn_ = true;
    const double seconds = std::chrono::duration<double>(now - started_).count();
    const std::string of = total_ == ~0ull ? "" : fmt::format(" of {}", format_bytes(total_));
    fmt::print(stderr, "\r\x1b[K{}: {}{}, {}", what_, format_bytes(bytes), of,
               format_rate(static_cast<double>(bytes) / seconds));
    std::fflush(stderr);
}

}  // namespace gnstor::cli
