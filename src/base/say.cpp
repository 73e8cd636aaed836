#include <gnstor/base/say.hpp>

#include <stdio_ext.h>

#include <string>
#include <string_view>

namespace gnstor {
namespace {

void write_or_drop(std::FILE* to, std::string_view text) noexcept {
    std::fflush(to);  // an error of earlier writes stays with the stream
    const bool had_error = std::ferror(to) != 0;
    const bool taken = std::fwrite(text.data(), 1, text.size(), to) == text.size() && std::fflush(to) == 0;
    if (taken) return;
    ::__fpurge(to);
    if (!had_error) std::clearerr(to);
}

}  // namespace

void detail::say_formatted(std::FILE* to, fmt::string_view format, fmt::format_args args) noexcept {
    try {
        write_or_drop(to, fmt::vformat(format, args));
    } catch (...) {
        // Out of memory: the bare text is better than nothing.
        write_or_drop(to, std::string_view(format.data(), format.size()));
    }
}

}  // namespace gnstor
