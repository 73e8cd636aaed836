// log.hpp: what the program tells its operator while it runs. Host code, any thread.
//
// Levels from the environment variable GNSTOR_LOG (debug, info, warn, error, off), default warn. Lines go to
// standard error, through spdlog where the build found it. The log is the program's only global object.
#pragma once

#include <fmt/core.h>

#include <optional>
#include <string_view>
#include <utility>

namespace gnstor {

enum class LogLevel : int { kDebug, kInfo, kWarn, kError, kOff };

[[nodiscard]] LogLevel log_level() noexcept;
void set_log_level(LogLevel level) noexcept;
/// "debug", "info", "warn", "error", "off"; nothing for other words.
[[nodiscard]] std::optional<LogLevel> log_level_from(std::string_view word) noexcept;
/// Writes one finished line; never throws.
void log_line(LogLevel level, std::string_view text) noexcept;

namespace detail {
void log_formatted(LogLevel level, fmt::string_view format, fmt::format_args args) noexcept;
}

template <class... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) noexcept {
    if (log_level() <= LogLevel::kDebug)
        detail::log_formatted(LogLevel::kDebug, format, fmt::make_format_args(args...));
}
template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) noexcept {
    if (log_level() <= LogLevel::kInfo)
        detail::log_formatted(LogLevel::kInfo, format, fmt::make_format_args(args...));
}
template <class... Args>
void log_warn(fmt::format_string<Args...> format, Args&&... args) noexcept {
    if (log_level() <= LogLevel::kWarn)
        detail::log_formatted(LogLevel::kWarn, format, fmt::make_format_args(args...));
}
template <class... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) noexcept {
    if (log_level() <= LogLevel::kError)
        detail::log_formatted(LogLevel::kError, format, fmt::make_format_args(args...));
}

}  // namespace gnstor
