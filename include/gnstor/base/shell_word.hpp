// shell_word.hpp: quotes a word of a command that an error message advises, for paste into a POSIX shell.
// Host code, any thread.
#pragma once

#include <string>
#include <string_view>

namespace gnstor {

/// `text` as one word of a POSIX shell: unchanged if no character in it is special to a shell, else in single
/// quotes.
[[nodiscard]] std::string shell_word(std::string_view text);

}  // namespace gnstor
