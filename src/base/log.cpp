// log.cpp: the log's level and its sink. The level is one atomic word that orders nothing; spdlog (or stdio)
// does the locking.
#include <gnstor/base/log.hpp>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#if defined(GN_WITH_SPDLOG)
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#endif

namespace gnstor {
namespace {

LogLevel level_from_environment() noexcept {
    const char* word = std::getenv("GNSTOR_LOG");
    if (word == nullptr) return LogLevel::kWarn;
    const auto level = log_level_from(word);
    if (!level.has_value())
        std::fprintf(stderr,
                     "gnstor: GNSTOR_LOG=%s is not a log level; use debug, info, warn, error or off\n", word);
    return level.value_or(LogLevel::kWarn);
}

std::atomic<int>& level_word() noexcept {
    static std::atomic<int> word{static_cast<int>(level_from_environment())};
    return word;
}

#if defined(GN_WITH_SPDLOG)
spdlog::logger& logger() {
    static const std::shared_ptr<spdlog::logger> owner = [] {
        auto made = std::make_shared<spdlog::logger>("gnstor",
                                                     std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
        made->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ [%t] %v");
        made->set_level(spdlog::level::trace);
        made->flush_on(spdlog::level::trace);
        return made;
    }();
    return *owner;
}

spdlog::level::level_enum spdlog_level(LogLevel level) {
    switch (level) {
        case LogLevel::kDebug:
            return spdlog::level::debug;
        case LogLevel::kInfo:
            return spdlog::level::info;
        case LogLevel::kWarn:
            return spdlog::level::warn;
        case LogLevel::kError:
            return spdlog::level::err;
        case LogLevel::kOff:
            return spdlog::level::off;
    }
    return spdlog::level::err;
}
#else
const char* level_name(LogLevel level) {
    constexpr const char* kNames[] = {"debug", "info", "warning", "error", "off"};
    return kNames[static_cast<int>(level)];
}
#endif

}  // namespace

LogLevel log_level() noexcept {
    return static_cast<LogLevel>(level_word().load(std::memory_order_relaxed));
}

void set_log_level(LogLevel level) noexcept {
    level_word().store(static_cast<int>(level), std::memory_order_relaxed);
}

std::optional<LogLevel> log_level_from(std::string_view word) noexcept {
    if (word == "debug") return LogLevel::kDebug;
    if (word == "info") return LogLevel::kInfo;
    if (word == "warn" || word == "warning") return LogLevel::kWarn;
    if (word == "error") return LogLevel::kError;
    if (word == "off") return LogLevel::kOff;
    return std::nullopt;
}

void log_line(LogLevel level, std::string_view text) noexcept {
    if (level < log_level() || level == LogLevel::kOff) return;
#if defined(GN_WITH_SPDLOG)
    try {
        logger().log(spdlog_level(level), spdlog::string_view_t(text.data(), text.size()));
    } catch (...) {
        std::fprintf(stderr, "gnstor: %.*s\n", static_cast<int>(text.size()), text.data());
    }
#else
    std::fprintf(stderr, "gnstor %s: %.*s\n", level_name(level), static_cast<int>(text.size()), text.data());
#endif
}

void detail::log_formatted(LogLevel level, fmt::string_view format, fmt::format_args args) noexcept {
    try {
        log_line(level, fmt::vformat(format, args));
    } catch (...) {
        // Out of memory, or an argument whose formatter throws: the bare text is better than nothing.
        log_line(level, std::string_view(format.data(), format.size()));
    }
}

}  // namespace gnstor
