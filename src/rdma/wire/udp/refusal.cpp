// refusal.cpp: messages for the reject reasons of IBA 12.6.7.2 and of the NVMe RDMA transport.
#include "rdma/wire/udp/refusal.hpp"

#include <gnstor/nvme/fabrics.hpp>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace gnstor::rdma::udp {
namespace {

const char* reason_name(roce::RejectReason reason) noexcept {
    switch (reason) {
        case roce::RejectReason::kNone:
            return "no reason given";
        case roce::RejectReason::kNoResources:
            return "it has no room for more connections";
        case roce::RejectReason::kTimeout:
            return "it timed out waiting for a message";
        case roce::RejectReason::kUnsupported:
            return "it does not support the requested parameters";
        case roce::RejectReason::kInvalidId:
            return "it does not know the connection";
        case roce::RejectReason::kInvalidService:
            return "no listener is on that port";
        case roce::RejectReason::kInvalidTransport:
            return "it supports only reliable connections";
        case roce::RejectReason::kInvalidPath:
            return "it has no port of that address and partition";
        case roce::RejectReason::kStaleConnection:
            return "it still has an old connection of this queue pair";
        case roce::RejectReason::kInvalidMtu:
            return "its interface does not support packets of that MTU";
        case roce::RejectReason::kConsumer:
            return "its listener refused the connection";
    }
    return "an unknown reason";
}

// RDMA Transport 1.0, figure 5: record format 0, then a status. Our own listeners send text.
std::string said(const roce::CmMessage& reject) {
    if (reject.reason != roce::RejectReason::kConsumer) return {};
    nvme::RdmaConnectReject record;
    static_assert(sizeof record <= sizeof reject.private_data);
    std::memcpy(&record, reject.private_data.data(), sizeof record);
    const auto rest =
        std::span(reject.private_data).subspan(sizeof record, reject.private_bytes - sizeof record);
    const bool bare = std::all_of(rest.begin(), rest.end(), [](std::byte b) { return b == std::byte{0}; });
    if (record.record_format == 0 && record.status != 0 && bare) {
        return fmt::format(" (NVMe: {}, {:#x})",
                           nvme::rdma_reject_name(static_cast<nvme::RdmaRejectStatus>(record.status)),
                           record.status);
    }
    const auto* const text = reinterpret_cast<const char*>(reject.private_data.data());
    const std::string_view words(text, strnlen(text, reject.private_bytes));
    const bool printable = !words.empty() && std::all_of(words.begin(), words.end(),
                                                         [](char c) { return c >= ' ' && c <= '~'; });
    return printable ? fmt::format(" ({})", words) : std::string();
}

}  // namespace

Error refusal(const std::string& whom, const roce::CmMessage& reject) {
    Errc code = Errc::kPermission;
    const char* todo = "";
    if (reject.reason == roce::RejectReason::kInvalidService) {
        code = Errc::kNotFound;
        todo = "; check that the node is started and which port it reports";
    } else if (reject.reason == roce::RejectReason::kNoResources) {
        code = Errc::kBusy;
        todo = "; try again later";
    }
    return error(code, "cannot connect to {}: {}, reason {}{}{}", whom, reason_name(reject.reason),
                 static_cast<unsigned>(reject.reason), said(reject), todo);
}

Error no_answer(const std::string& whom, std::uint16_t udp_port) {
    return error(Errc::kTimedOut,
                 "cannot connect to {}: none of the connection messages was answered; check that the node "
                 "runs and listens on that address, and that no firewall blocks UDP port {}",
                 whom, udp_port);
}

}  // namespace gnstor::rdma::udp
