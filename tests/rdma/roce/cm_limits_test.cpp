// cm_limits_test.cpp: what one peer, or time, may take of the table of connections, whatever it says.
#include "cm_rig.hpp"

#include <gtest/gtest.h>

using namespace gnstor;
using namespace gnstor::rdma::roce;
using samples::address_of;

namespace {

constexpr std::uint64_t kService = service_of_port(4420);

CmMessage request(std::uint32_t id) {
    CmMessage m;
    m.kind = CmKind::kRequest;
    m.service_id = kService;
    m.local_id = m.queue_pair = id;
    m.transaction = id;
    return m;
}

std::optional<CmMessage> next_of_kind(ConnectionManager& manager, CmKind kind) {
    std::optional<CmMessage> found;
    Gid to;
    CmMessage message;
    while (manager.next_message(to, message))
        if (message.kind == kind) found = message;
    return found;
}

/// The id of the connection that `peer` asked for, if it is one that its listener hears of.
std::optional<CmId> ask(ConnectionManager& manager, TimeNs now, const Gid& peer, std::uint32_t id) {
    manager.on_message(now, peer, request(id));
    CmEvent event;
    std::optional<CmId> asked;
    while (manager.next_event(event))
        if (event.kind == CmEventKind::kRequested) asked = event.id;
    return asked;
}

TEST(RoceCmLimits, APeerThatAsksForPatienceForEverIsGivenUpInBoundedTime) {
    CmOptions options = samples::CmRig::options(1);
    ConnectionManager manager(options);
    ASSERT_TRUE(manager.listen(kService).ok());
    TimeNs now = 1'000'000'000;
    const TimeNs begun = now;
    const auto id = ask(manager, now, address_of(7), 5);
    ASSERT_TRUE(id);
    now += 2'000'000'000;  // the listener thinks
    manager.on_time(now);
    ASSERT_TRUE(manager.accept(now, *id, CmParameters{}).ok());
    CmMessage wait = *next_of_kind(manager, CmKind::kReply);
    std::swap(wait.local_id, wait.remote_id);
    wait.kind = CmKind::kReceipt;
    wait.service_timeout = 31;
    std::optional<CmEnd> end;
    std::uint32_t asked = 0;
    while (!end && manager.next_deadline() != kNever) {
        manager.on_message(now, address_of(7), wait);
        ++asked;
        now = manager.next_deadline();
        manager.on_time(now);
        CmEvent event;
        while (manager.next_event(event)) {
            ASSERT_EQ(event.kind, CmEventKind::kClosed);
            end = event.end;
        }
    }
    ASSERT_TRUE(end);
    EXPECT_EQ(*end, CmEnd::kTimedOut);
    EXPECT_EQ(now, begun + options.half_open_timeout_ns) << "after " << asked << " messages";
    EXPECT_EQ(manager.half_open(), 0u);
    const auto told = next_of_kind(manager, CmKind::kReject);
    ASSERT_TRUE(told) << "it is told, and forgets its queue pair too";
    EXPECT_EQ(told->reason, RejectReason::kTimeout);
}

TEST(RoceCmLimits, AListenerThatDoesNotDecideHoldsAPlaceNoLonger) {
    CmOptions options = samples::CmRig::options(1);
    ConnectionManager manager(options);
    ASSERT_TRUE(manager.listen(kService).ok());
    const auto id = ask(manager, 10, address_of(7), 5);
    ASSERT_TRUE(id);
    manager.on_time(10 + options.half_open_timeout_ns);
    EXPECT_FALSE(manager.accept(10 + options.half_open_timeout_ns, *id, CmParameters{}).ok());
    EXPECT_EQ(manager.half_open(), 0u);
}

}  // namespace
