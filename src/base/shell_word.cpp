#include <gnstor/base/shell_word.hpp>

namespace gnstor {

std::string shell_word(std::string_view text) {
    // All other characters are special to some shell, at some place in a word.
    constexpr std::string_view kPlain =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%+,-./:=@_";
    if (!text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos) return std::string(text);
    std::string word = "'";
    for (const char c : text) {
        if (c == '\'')
            word += R"('\'')";  // ends the quotes, an escaped quote, quotes again
        else
            word += c;
    }
    return word + "'";
}

}  // namespace gnstor
