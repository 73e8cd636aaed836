// connect_test.cpp: private data and Connect: what host and target say to each other before the first
// command.
#include "nvmf/protocol/connect.hpp"

#include "nvmf/protocol/nqn.hpp"

#include <gtest/gtest.h>

#include <cstring>

namespace gnstor::nvmf {
namespace {

using nvme::RdmaRejectStatus;
using nvme::Status;

ConnectRequest sample() {
    ConnectRequest r;
    r.queue_id = 2;
    r.sq_size = 31;
    r.attributes = 1;
    r.keep_alive_ms = 5000;
    r.host_id = {1, 2, 3};
    r.controller_id = 17;
    r.subsystem_nqn = "nqn.2026-11.io.gnstor:ssd:x";
    r.host_nqn = client_host_nqn(9);
    return r;
}
ConnectVerdict parse(const nvme::Command& command, const nvme::ConnectData& data) {
    return parse_connect(command, std::as_bytes(std::span<const nvme::ConnectData, 1>(&data, 1)));
}

TEST(Connect, TheTargetDecodesWhatTheHostEncodes) {
    const ConnectRequest r = sample();
    const auto v = parse(connect_command(r), connect_data(r));
    ASSERT_EQ(v.status, Status::kSuccess);
    EXPECT_EQ(v.request.queue_id, r.queue_id);
    EXPECT_EQ(v.request.sq_size, r.sq_size);
    EXPECT_EQ(v.request.attributes, r.attributes);
    EXPECT_EQ(v.request.keep_alive_ms, r.keep_alive_ms);
    EXPECT_EQ(v.request.host_id, r.host_id);
    EXPECT_EQ(v.request.controller_id, r.controller_id);
    EXPECT_EQ(v.request.subsystem_nqn, r.subsystem_nqn);
    EXPECT_EQ(v.request.host_nqn, r.host_nqn);
}

TEST(Connect, ABadFieldIsNamedInTheAnswer) {
    const ConnectRequest r = sample();
    auto bad = r;
    bad.host_nqn = "hello";
    auto v = parse(connect_command(r), connect_data(bad));
    EXPECT_EQ(v.status, Status::kConnectInvalidParameters);
    EXPECT_EQ(v.dw0, 0x10200u);
    EXPECT_EQ(connect_refusal_text(v.status, v.dw0), "Connect Invalid Parameters: host NQN");
    bad = r;
    bad.subsystem_nqn.clear();
    EXPECT_EQ(parse(connect_command(r), connect_data(bad)).dw0, 0x10100u);
    bad = r;
    bad.host_id = {};
    EXPECT_EQ(parse(connect_command(r), connect_data(bad)).dw0, 0x10000u);
    bad = r;
    bad.sq_size = 0;
    EXPECT_EQ(parse(connect_command(bad), connect_data(r)).dw0, 44u);
    nvme::Command c = connect_command(r);
    c.cdw10 |= 1;  // record format
    EXPECT_EQ(parse(c, connect_data(r)).status, Status::kConnectIncompatibleFormat);
}

TEST(Connect, PrivateDataOfARequestIsChecked) {
    const QueueLimits limits{.admin_entries_max = 32, .io_entries_max = 128, .io_queues_max = 4};
    const auto reject = [&](std::uint16_t qid, std::uint32_t entries) {
        return check_transport_request(transport_request_data(qid, entries, 0), limits).reject;
    };
    EXPECT_FALSE(reject(0, 32));
    EXPECT_EQ(reject(0, 33), RdmaRejectStatus::kInvalidHostSendQueueSize);
    EXPECT_FALSE(reject(4, 128));
    EXPECT_EQ(reject(5, 128), RdmaRejectStatus::kInvalidQueueId);
    EXPECT_EQ(reject(1, 129), RdmaRejectStatus::kInvalidHostSendQueueSize);
    EXPECT_EQ(reject(1, 1), RdmaRejectStatus::kInvalidHostSendQueueSize);
    auto bytes = transport_request_data(1, 64, 0);
    EXPECT_EQ(check_transport_request(std::span(bytes).first(31), limits).reject,
              RdmaRejectStatus::kInvalidLength);
    EXPECT_EQ(check_transport_request({}, limits).reject, RdmaRejectStatus::kInvalidLength);
    bytes[0] = std::byte{1};
    EXPECT_EQ(check_transport_request(bytes, limits).reject, RdmaRejectStatus::kInvalidRecordFormat);
    bytes = transport_request_data(1, 64, 0);
    bytes[4] = std::byte{10};  // fewer receives than commands
    EXPECT_EQ(check_transport_request(bytes, limits).reject, RdmaRejectStatus::kInvalidHostReceiveQueueSize);
    // Connection managers pad: what follows the 32 bytes does not matter.
    std::vector<std::byte> padded(56);
    bytes = transport_request_data(1, 64, 3);
    std::memcpy(padded.data(), bytes.data(), bytes.size());
    const auto v = check_transport_request(padded, limits);
    EXPECT_FALSE(v.reject);
    EXPECT_EQ(v.request.entries, 64u);
    EXPECT_EQ(v.request.controller_id, 3u);
}

TEST(Connect, TheHostChecksTheGrantedParameters) {
    EXPECT_TRUE(check_transport_accept(transport_accept_data(64), 64).ok());
    EXPECT_FALSE(check_transport_accept(transport_accept_data(63), 64).ok());
    EXPECT_FALSE(check_transport_accept({}, 64).ok());
    auto bytes = transport_accept_data(64);
    bytes[0] = std::byte{9};
    EXPECT_FALSE(check_transport_accept(bytes, 64).ok());
}

}  // namespace
}  // namespace gnstor::nvmf
