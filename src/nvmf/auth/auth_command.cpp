#include "nvmf/auth/auth_command.hpp"

#include "nvmf/auth/dhchap_messages.hpp"

#include <gnstor/nvme/fabrics.hpp>

#include <algorithm>
#include <bit>

namespace gnstor::nvmf::auth {

namespace {
constexpr std::uint8_t kSpecific = 0x01;
constexpr auto kFabricsOpcode = static_cast<std::uint8_t>(nvme::AdminOpcode::kFabrics);
}  // namespace

AuthCommandVerdict parse_auth_command(const nvme::Command& command) {
    const auto c = std::bit_cast<AuthenticationCommand>(command);
    AuthCommandVerdict verdict;
    if (c.opcode != kFabricsOpcode) return {.status = nvme::Status::kInvalidOpcode};
    switch (nvme::fabrics_type(command)) {
        case nvme::FabricsType::kAuthenticationSend:
            verdict.direction = AuthDirection::kSend;
            break;
        case nvme::FabricsType::kAuthenticationReceive:
            verdict.direction = AuthDirection::kReceive;
            break;
        default:
            return {.status = nvme::Status::kInvalidOpcode};
    }
    if (c.protocol != kSecurityProtocolNvmeOf || c.specific0 != kSpecific || c.specific1 != kSpecific ||
        c.bytes == 0 || (verdict.direction == AuthDirection::kSend && c.bytes > kAuthMessageBytesMax))
        return {.status = nvme::Status::kInvalidField};
    // A host may offer more room than any message takes.
    verdict.bytes = std::min(c.bytes, static_cast<std::uint32_t>(kAuthMessageBytesMax));
    return verdict;
}

nvme::Command auth_command(AuthDirection direction, std::uint32_t bytes) {
    AuthenticationCommand c{};
    c.opcode = kFabricsOpcode;
    c.flags = nvme::kFlagsSgl;
    c.type = static_cast<std::uint8_t>(direction == AuthDirection::kSend
                                           ? nvme::FabricsType::kAuthenticationSend
                                           : nvme::FabricsType::kAuthenticationReceive);
    c.specific0 = kSpecific;
    c.specific1 = kSpecific;
    c.protocol = kSecurityProtocolNvmeOf;
    c.bytes = bytes;
    return std::bit_cast<nvme::Command>(c);
}

}  // namespace gnstor::nvmf::auth
