#include "cli/output.hpp"

#include <gnstor/base/say.hpp>
#include <gnstor/base/units.hpp>

#include "daemon/http/api_json.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace gnstor::cli {
namespace {

/// A failure sets the stream's error flag; Output::finish() reports it.
void write_out(const std::string& text) {
    (void)std::fwrite(text.data(), 1, text.size(), stdout);
}

}  // namespace

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
    if (json) write_out(value.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

void Output::text(const std::string& lines) const {
    if (!json) write_out(lines);
}

int Output::finish(int code) const {
    errno = 0;
    const bool flushed = std::fflush(stdout) == 0;
    if ((flushed && std::ferror(stdout) == 0) || code != kOk) return code;
    const std::string why = errno != 0 ? fmt::format(": {}", std::strerror(errno)) : std::string();
    return fail(error(Errc::kIo,
                      "the command was carried out, but its output could not be written to standard output{}",
                      why));
}

int Output::fail(const Error& e) const {
    std::fflush(stdout);  // keeps earlier output in front of the error
    const nlohmann::json value{
        {"error", {{"code", std::string(daemon::errc_name(e.code))}, {"message", e.message}}}};
    if (json)
        say(stderr, "{}\n", value.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    else
        say(stderr, "gnstor: {}\n", e.message);
    return kFailed;
}

std::string progress_text(const std::string& what, std::uint64_t bytes, std::uint64_t total, double seconds) {
    constexpr std::uint64_t kWidth = 24;
    const double rate = seconds > 0 ? static_cast<double>(bytes) / seconds : 0;
    if (total == ~0ull || total == 0)
        return fmt::format("{}: {}, {}", what, format_bytes(bytes), format_rate(rate));
    const double share = std::min(1.0, static_cast<double>(bytes) / static_cast<double>(total));
    const auto full = static_cast<std::size_t>(share * kWidth);
    const std::string left = rate > 0 && bytes < total
                                 ? fmt::format(", {:.0f} s left", static_cast<double>(total - bytes) / rate)
                                 : std::string();
    return fmt::format("{}: [{}{}] {:.0f} %, {} of {}, {}{}", what, std::string(full, '#'),
                       std::string(kWidth - full, '.'), share * 100, format_bytes(bytes), format_bytes(total),
                       format_rate(rate), left);
}

ProgressLine::ProgressLine(std::string what, std::uint64_t total, bool quiet)
    : what_(std::move(what)),
      total_(total),
      terminal_(!quiet && ::isatty(2) == 1),
      started_(std::chrono::steady_clock::now()),
      last_(started_) {}

ProgressLine::~ProgressLine() {
    if (drawn_) say(stderr, "\r\x1b[K");
}

void ProgressLine::at(std::uint64_t bytes, std::uint64_t total) {
    const auto now = std::chrono::steady_clock::now();
    const bool due = drawn_ ? now - last_ >= std::chrono::milliseconds(100) : bytes < total;
    if (!terminal_ || !due) return;
    last_ = now;
    drawn_ = true;
    const double seconds = std::chrono::duration<double>(now - started_).count();
    say(stderr, "\r\x1b[K{}", progress_text(what_, bytes, total, seconds));
    std::fflush(stderr);
}

}  // namespace gnstor::cli
