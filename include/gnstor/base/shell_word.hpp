// shell_word.hpp: a word of a command that an error message advises, for paste into a POSIX shell. Host code,
// any thread.
#pragma once

#include <string>
#include <string_view>

namespace gnstor {

/// The word as a POSIX shell takes it for this text: as it is where no sign in it means anything to a shell,
/// in single quotes otherwise.
[[nodiscard]] std::string shell_word(std::string_view text);

}  // namespace gnstor
