#include "nvmf/auth/dhchap_key.hpp"

#include "nvmf/auth/dhchap_crypto.hpp"

#include <cstring>
#include <optional>

namespace gnstor::nvmf::auth {

namespace {

constexpr std::string_view kPrefix = "DHHC-1:";
constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::size_t kChecksumBytes = 4;
constexpr std::size_t kTextMax = 128;  // the longest key takes 104 characters

bool is_key_length(std::size_t bytes) {
    return bytes == 32 || bytes == 48 || bytes == 64;
}

/// CRC-32 of IEEE 802.3 (reflected polynomial EDB88320h), as zlib's crc32().
std::uint32_t checksum(std::span<const std::byte> bytes) {
    std::uint32_t crc = 0xFFFFFFFFu;
    for (const std::byte byte : bytes) {
        crc ^= std::to_integer<std::uint32_t>(byte);
        for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) != 0 ? 0xEDB88320u : 0u);
    }
    return ~crc;
}

/// Base64 (RFC 4648, section 4) in its canonical form alone; nothing: malformed.
std::optional<Secret> decode_base64(std::string_view text) {
    if (text.empty() || text.size() % 4 != 0) return std::nullopt;
    std::size_t padding = 0;
    while (padding < 2 && text[text.size() - 1 - padding] == '=') ++padding;
    Secret bytes(text.size() / 4 * 3 - padding);
    std::size_t filled = 0;
    std::uint32_t bits = 0;
    std::uint32_t held = 0;
    for (const char c : text.substr(0, text.size() - padding)) {
        const std::size_t value = kAlphabet.find(c);
        if (value == std::string_view::npos) return std::nullopt;
        bits = ((bits << 6) | static_cast<std::uint32_t>(value)) & 0xFFFFu;
        held += 6;
        if (held < 8) continue;
        held -= 8;
        bytes.writable()[filled++] = std::byte((bits >> held) & 0xFFu);
    }
    // Bits that no byte takes are zero: one key, one text.
    if ((bits & ((1u << held) - 1u)) != 0) return std::nullopt;
    return bytes;
}

Secret encode_base64(std::string_view before, std::span<const std::byte> bytes, std::string_view after) {
    Secret text(before.size() + (bytes.size() + 2) / 3 * 4 + after.size());
    std::byte* to = text.writable().data();
    std::memcpy(to, before.data(), before.size());
    to += before.size();
    for (std::size_t i = 0; i < bytes.size(); i += 3) {
        std::uint32_t group = 0;
        for (std::size_t j = 0; j < 3; ++j)
            group = (group << 8) | (i + j < bytes.size() ? std::to_integer<std::uint32_t>(bytes[i + j]) : 0u);
        for (std::size_t j = 0; j < 4; ++j) {
            const bool filled =
                i + j <= bytes.size();  // j characters need j bytes of the group, the first one
            *to++ = static_cast<std::byte>(filled ? kAlphabet[(group >> (18 - 6 * j)) & 63u] : '=');
        }
    }
    std::memcpy(to, after.data(), after.size());
    return text;
}

template <class... Args>
Error bad_key(fmt::format_string<Args...> format, Args&&... args) {
    return error(Errc::kInvalidArgument, "DH-HMAC-CHAP key: {}; make one with: nvme gen-dhchap-key",
                 fmt::format(format, std::forward<Args>(args)...));
}

/// Splits off the hash and the Base64 part: "DHHC-1:" hh ":" BASE64 ":".
struct KeyParts {
    KeyTransform transform;
    std::string_view base64;
};
Result<KeyParts> split(std::string_view text) {
    if (text.size() > kTextMax) return bad_key("the text is longer than any key");
    if (!text.starts_with(kPrefix)) return bad_key("the text does not begin with DHHC-1:");
    text.remove_prefix(kPrefix.size());
    if (text.size() < 3 || text[0] != '0' || text[1] < '0' || text[1] > '3' || text[2] != ':')
        return bad_key("DHHC-1: is not followed by the hash, 00, 01, 02 or 03, and a colon");
    const auto transform = static_cast<KeyTransform>(text[1] - '0');
    text.remove_prefix(3);
    if (text.empty() || text.back() != ':') return bad_key("the text does not end with a colon");
    text.remove_suffix(1);
    return KeyParts{transform, text};
}

}  // namespace

Result<DhchapKey> DhchapKey::parse(std::string_view text) {
    GN_ASSIGN(const KeyParts parts, split(text));
    const std::optional<Secret> decoded = decode_base64(parts.base64);
    if (!decoded) return bad_key("the part after the hash is not Base64");
    if (decoded->size() < kChecksumBytes || !is_key_length(decoded->size() - kChecksumBytes))
        return bad_key("it holds neither 32, 48 nor 64 bytes and a checksum");
    const auto bytes = decoded->view().first(decoded->size() - kChecksumBytes);
    std::uint32_t stored = 0;
    for (std::size_t i = kChecksumBytes; i-- > 0;)
        stored = (stored << 8) | std::to_integer<std::uint32_t>(decoded->view()[bytes.size() + i]);
    if (stored != checksum(bytes)) return bad_key("the checksum is wrong: a character was changed");
    return from_bytes(parts.transform, bytes);
}

Result<DhchapKey> DhchapKey::from_bytes(KeyTransform transform, std::span<const std::byte> bytes) {
    if (!is_key_length(bytes.size())) return bad_key("a key has 32, 48 or 64 bytes, not {}", bytes.size());
    if (transform != KeyTransform::kNone && hash_bytes(static_cast<HashId>(transform)) != bytes.size())
        return bad_key("a key of {} bytes does not go with hash {:02}, which takes {} bytes", bytes.size(),
                       static_cast<unsigned>(transform), hash_bytes(static_cast<HashId>(transform)));
    return DhchapKey(transform, Secret(bytes));
}

Secret DhchapKey::text() const {
    Secret bytes(bytes_.size() + kChecksumBytes);
    std::memcpy(bytes.writable().data(), bytes_.view().data(), bytes_.size());
    const std::uint32_t crc = checksum(bytes_.view());
    for (std::size_t i = 0; i < kChecksumBytes; ++i)
        bytes.writable()[bytes_.size() + i] = std::byte((crc >> (8 * i)) & 0xFFu);
    const char before[] = {
        'D', 'H', 'H', 'C', '-', '1', ':', '0', static_cast<char>('0' + static_cast<int>(transform_)), ':'};
    return encode_base64({before, sizeof before}, bytes.view(), ":");
}

Result<Secret> DhchapKey::transform(std::string_view nqn) const {
    if (transform_ == KeyTransform::kNone) return bytes_.clone();
    return hmac(static_cast<HashId>(transform_), bytes_.view(),
                {bytes_of(nqn), bytes_of("NVMe-over-Fabrics")});
}

}  // namespace gnstor::nvmf::auth
