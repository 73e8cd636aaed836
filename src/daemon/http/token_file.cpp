#include "daemon/http/token_file.hpp"

#include "base/random.hpp"
#include "daemon/http/access.hpp"

#include <gnstor/base/private_file.hpp>

#include <array>
#include <span>

namespace gnstor::daemon {
namespace {

constexpr std::size_t kTokenFileBytes = 1024;
constexpr PrivateFileWords kTokenWords{"token file",
                                       "make a new token (remove the file and restart gnstord)"};

std::string random_token() {
    std::array<unsigned char, 32> bytes{};
    fill_random(std::as_writable_bytes(std::span(bytes)));
    std::string text;
    for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
    return text;
}

}  // namespace

Result<std::string> read_token(const std::filesystem::path& file) {
    GN_ASSIGN(std::string token, read_private_file(file, kTokenFileBytes, kTokenWords));
    while (!token.empty() && (token.back() == '\n' || token.back() == '\r' || token.back() == ' '))
        token.pop_back();
    if (is_token(token)) return token;
    return error(Errc::kInvalidArgument,
                 "{} holds no valid token (16 to 256 letters, digits and -._~+/=); remove it, and gnstord "
                 "creates a new one when it starts",
                 file.string());
}

Result<std::string> read_or_make_token(const std::filesystem::path& file) {
    Result<std::string> there = read_token(file);
    if (there.ok() || there.error().code != Errc::kNotFound) return there;
    GN_TRY(create_file(file, random_token() + "\n", 0600, kTokenWords.name));
    return read_token(file);
}

}  // namespace gnstor::daemon
