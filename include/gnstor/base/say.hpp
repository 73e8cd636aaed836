// say.hpp: text for people, on standard output or standard error; the program continues if it cannot be
// written. Host code, any thread.
#pragma once

#include <fmt/core.h>

#include <cstdio>
#include <utility>

namespace gnstor {

namespace detail {
void say_formatted(std::FILE* to, fmt::string_view format, fmt::format_args args) noexcept;
}

/// Writes the text and flushes the stream. If the write fails (a full disk, a pipe whose reader has ended),
/// the text is lost, the stream's error is cleared, and no exception is thrown, unlike fmt::print(). The
/// program ignores SIGPIPE and SIGXFSZ.
template <class... Args>
void say(std::FILE* to, fmt::format_string<Args...> format, Args&&... args) noexcept {
    detail::say_formatted(to, format, fmt::make_format_args(args...));
}

}  // namespace gnstor
