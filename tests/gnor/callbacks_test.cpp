// callbacks_test.cpp: handlers of asynchronous requests: functors that views know and call directly, functors
// that they do not know, functions by pointer and by index in a table.
#include <gtest/gtest.h>

#include "gnor/bench.hpp"
#include "gnor/callback_cases.hpp"

namespace gnstor::test {
namespace {

struct Add {
    std::uint64_t* to;
    std::uint64_t n;
    void operator()(Status status) const { *to += nvme::ok(status) ? n : 1'000'000; }
};
struct Largest {  // all that a slot has room for
    std::uint64_t* to;
    std::uint64_t a, b;
    void operator()(Status) const { *to = a ^ b; }
};
static_assert(sizeof(Largest) == gnor::kHandlerBytes);

class Handlers : public ::testing::Test {
  protected:
    ~Handlers() override {
        EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
        rig.expect_clean();
    }
    /// Polls through this view until the drives have answered all, and then some.
    template <class Channel>
    void poll_all(Channel channel) {
        const Deadline end = late();
        const auto before = sent;
        while (rig.channels[0]->counters().value().completions < before && !end.passed()) channel.poll(kMe);
        for (int i = 0; i < 10; ++i) channel.poll(kMe);
    }
    template <class Channel, class Handler>
    void read(Channel channel, const Handler& handler) {
        // Without a trip of polling, in which the callback of the one before might run.
        ASSERT_EQ(v.try_read_async(simt::Lane{}, channel, 0, 1, buffer, handler), Status::kSuccess);
        ++sent;
    }
    Rig rig{};
    VolumeRef v = rig.volume();
    ChannelRef ch = rig.channel();
    void* buffer = ch.alloc(kMe, 4096);
    std::uint64_t sum = 0, sent = 0;
};

TEST_F(Handlers, RunOnceThroughTheDefaultViewAndThroughAViewWithTheirTypes) {
    read(ch, Add{&sum, 3});
    poll_all(ch);
    EXPECT_EQ(sum, 3u);
    read(ch.with<Add>(), Add{&sum, 4});
    poll_all(ch.with<Largest, Add>());
    EXPECT_EQ(sum, 7u);
    read(ch.with<Add>(), Add{&sum, 5});
    poll_all(ch);
    EXPECT_EQ(sum, 12u);
    poll_all(ch);
    EXPECT_EQ(sum, 12u);
    EXPECT_EQ(rig.channels[0]->counters().value().callbacks, 3u);
}

TEST_F(Handlers, StayDueUntilAViewWithTheirTypesPolls) {
    std::uint64_t other = 0;
    read(ch.with<Add>(), Add{&sum, 3});
    read(ch.with<Largest>(), Largest{&other, 3, 4});
    read(ch, PointerCallback{nullptr, nullptr});
    poll_all(ch.with<>());
    EXPECT_EQ(sum + other, 0u);
    EXPECT_EQ(rig.channels[0]->usage().value().slots_taken, 3u);
    poll_all(ch.with<Largest>());
    EXPECT_EQ(sum, 0u);
    EXPECT_EQ(other, 7u);
    EXPECT_EQ(v.read(kMe, ch.with<>(), 0, 1, buffer, late()), Status::kSuccess) << "a call in between";
    ++sent;
    EXPECT_EQ(sum, 0u);
    poll_all(ch.with<Add>());
    EXPECT_EQ(sum, 3u);
    EXPECT_EQ(rig.channels[0]->usage().value().slots_taken, 1u) << "C's";
    rig.channels[0]->quiesce(late()).value();  // the host's view knows all
}

/// The only request with a callback.
gnor::CommandSlot& with_callback(gnor::ChannelState& c) {
    for (std::uint32_t i = 0; i < c.command_slots; ++i)
        if (gnor::state_of(gnor::load_control(c.slot(i))) == gnor::SlotState::kCallback) return c.slot(i);
    ADD_FAILURE() << "no request with a callback";
    return c.slot(0);
}
constexpr std::uint64_t kAnotherModule = 2;

TEST_F(Handlers, OfAnotherModuleStayDueForItsOwnLanes) {
    read(ch, Add{&sum, 3});
    with_callback(ch.state()).module = kAnotherModule;
    poll_all(ch);
    poll_all(ch.with<Add>());
    EXPECT_EQ(sum, 0u);
    EXPECT_EQ(rig.channels[0]->usage().value().requests_with_callbacks, 1u);
    with_callback(ch.state()).module = gnor::this_module();
    poll_all(ch);
    EXPECT_EQ(sum, 3u);
}

TEST_F(Handlers, CarryAsManyBytesAsACommandSlotHolds) {
    std::uint64_t result = 0;
    read(ch.with<Largest>(), Largest{&result, 0x1111, 0x4444'0000'0000'0000});
    poll_all(ch.with<Largest>());
    EXPECT_EQ(result, 0x1111u ^ 0x4444'0000'0000'0000u);
}

TEST_F(Handlers, OfALongRequestRunOnceAtItsEndWithTheWorstStatus) {
    auto* const large = static_cast<std::byte*>(ch.alloc(kMe, 8 * 65536));
    rig.drives[rig.replicas_of(3 * 16).slot[0]]->set_rule([](const auto&, const nvme::IoFields& f) {
        return f.block == 3 * 16 ? Decision{Decision::kRefuse, Status::kAccessDenied, 0} : Decision{};
    });
    Report report{};
    std::uint64_t mark = 0;
    const MarkHandler handler{&mark, &report, 0, static_cast<std::uint32_t>(Status::kAccessDenied)};
    const auto view = ch.with<MarkHandler>();
    ASSERT_EQ(v.read_async(simt::Lane{}, view, 0, 8 * 16, large, handler, late()), Status::kSuccess);
    sent += 8;
    poll_all(view);
    EXPECT_EQ(mark, 1u);
    EXPECT_EQ(report.failures, 0u);
    EXPECT_EQ(ch.free(kMe, large), Status::kSuccess);
}

TEST_F(Handlers, OfRequestsThatWereNotSentNeverRun) {
    std::byte own[4096];
    EXPECT_EQ(v.read_async(simt::Lane{}, ch, 0, 1, own, Add{&sum, 1}, late()), Status::kNotRegistered);
    EXPECT_EQ(v.try_read_async(simt::Lane{}, ch, 1u << 20, 1, buffer, Add{&sum, 1}), Status::kLbaOutOfRange);
    poll_all(ch);
    EXPECT_EQ(sum, 0u);
}

void add_seven(void* argument, Status status) {
    *static_cast<std::uint64_t*>(argument) += nvme::ok(status) ? 7 : 1'000'000;
}
void add_nine(void* argument, Status) {
    *static_cast<std::uint64_t*>(argument) += 9;
}

TEST_F(Handlers, AsCFunctionsAreFoundInATableByIndex) {
    auto table = CallbackTable::create(simt::LanesKind::kCpu, 3).value();
    table.set<&add_seven>(0).value();
    table.set<&add_nine>(2).value();
    EXPECT_FALSE(table.set<&add_nine>(3).ok());
    EXPECT_FALSE(CallbackTable::create(simt::LanesKind::kCpu, 0).ok());
    const auto call = [&](std::uint32_t index) {
        return gnstor_read_async_by_index({}, v, ch, 0, 1, buffer, table.ref(), index, &sum, kLong);
    };
    EXPECT_EQ(call(3), gnstor_status(Status::kBadArgument));
    EXPECT_EQ(call(0), 0);
    EXPECT_EQ(call(1), 0) << "an empty table entry must not be called";
    EXPECT_EQ(call(2), 0);
    EXPECT_EQ(gnstor_write_async_by_index({}, v, ch, 5, 1, buffer, table.ref(), 0, &sum, kLong), 0);
    sent += 5;  // a write has two replicas
    poll_all(ch);
    EXPECT_EQ(sum, 7u + 9 + 7);
}

TEST_F(Handlers, OfATableAreRunByTheModuleThatPutThemThere) {
    CallbackEntry entries[] = {{&add_seven, kAnotherModule}, {nullptr, kAnotherModule}};
    read(ch, TableCallback{entries, 0, &sum});
    EXPECT_EQ(with_callback(ch.state()).module, kAnotherModule);
    poll_all(ch);
    EXPECT_EQ(sum, 0u);
    // These lanes are that module's now.
    entries[0].module = with_callback(ch.state()).module = gnor::this_module();
    poll_all(ch);
    EXPECT_EQ(sum, 7u);
    read(ch, TableCallback{entries, 1, &sum});  // nobody there: anybody's
    poll_all(ch);
    EXPECT_EQ(rig.channels[0]->usage().value().slots_taken, 0u);
}

TEST_F(Handlers, OfAReplacedTableEntryAreTheNewFunctionsAndNeverThoseOfAnotherModule) {
    CallbackEntry entries[] = {{&add_seven, gnor::this_module()}, {nullptr, 0}};
    read(ch, TableCallback{entries, 0, &sum});
    entries[0].function = &add_nine;
    poll_all(ch);
    EXPECT_EQ(sum, 9u);
    for (const std::uint32_t index : {0u, 1u}) {
        read(ch, TableCallback{entries, index, &sum});
        entries[index] = {&add_seven, kAnotherModule};  // whose addresses are none of ours
        poll_all(ch);
        EXPECT_EQ(sum, 9u);
        EXPECT_EQ(rig.channels[0]->usage().value().requests_with_callbacks, 0u)
            << "the request must end although its callback does not run";
        EXPECT_EQ(rig.channels[0]->usage().value().slots_taken, 0u);
    }
}

TEST_F(Handlers, OfABatchAreCalledByTheLaneThatSubmitted) {
    Batch<32, Add> batch{};
    const simt::Lane lane{};
    batch.init(kMe, lane);
    const IoRequest request{0, 1, buffer, 0, 0};
    for (std::uint64_t i = 1; i <= 3; ++i) {
        ASSERT_EQ(batch.submit(kMe, lane, v, ch.with<>(), nvme::IoOpcode::kRead, &request, Add{&sum, i}),
                  Status::kSuccess);
        EXPECT_EQ(batch.submit(kMe, lane, v, ch, nvme::IoOpcode::kRead, &request, Add{&sum, 100}),
                  Status::kTooManyPending)
            << "the table entry must stay set";
        batch.commit(kMe, lane, ch);
        const Deadline end = late();
        while (!batch.dispatch(kMe, lane, ch).finished && !end.passed()) batch.poll(kMe, ch.with<>());
    }
    EXPECT_EQ(sum, 1u + 2 + 3);
}

// ---- many lanes

template <Sharing kMode>
void run_chains(std::uint32_t blocks, std::uint32_t threads, std::uint32_t channels) {
    constexpr std::uint32_t kLength = 40;
    RigOptions o = options_of(channels, 4);
    o.sharing = kMode;
    Bench b(o, 1, 64);
    const std::uint32_t lanes = blocks * threads;
    using One = Chain<BareChannel<kMode>>;
    auto chains = simt::DeviceMemory::allocate(lanes * sizeof(One), simt::LanesKind::kCpu).value();
    b.launch(blocks, threads, LanesOfChains<kMode>{b.common, chains.lane_as<One>(), kLength}, 4);
    b.expect_good(lanes * 3);
    EXPECT_EQ(b.report().callbacks, lanes * (kLength + 1));
    b.rig.expect_clean();
}
TEST(ManyHandlers, MaySendTheNextRequestByATryCall) {
    run_chains<Sharing::kGrid>(6, 4, 1);
    run_chains<Sharing::kBlock>(2, 8, 2);
    run_chains<Sharing::kLane>(2, 2, 4);
}

TEST(ManyHandlers, EachRunOnceWhicheverLaneFindsItDue) {
    for (const bool known : {true, false}) {
        constexpr std::uint32_t kLanes = 30, kRequests = 20;
        Bench b(options_of(1, 8), 1, 64);
        auto marks = simt::DeviceMemory::allocate(kLanes * kRequests * 8, simt::LanesKind::kCpu).value();
        auto* const mark = marks.lane_as<std::uint64_t>();
        b.test_warps(6, 5, LanesOfHandlers{b.common, mark, kRequests, known});
        b.expect_good(kLanes * (kRequests + 1));
        for (std::uint32_t i = 0; i < kLanes * kRequests; ++i) ASSERT_EQ(mark[i], 1u) << i;
        b.rig.expect_clean();
    }
}

}  // namespace
}  // namespace gnstor::test
