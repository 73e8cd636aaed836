// Weighted round robin: shares converge to the weights under saturation, urgent queues go first, nobody
// starves.
#include "ssd/queues/arbiter.hpp"

#include "drive_rig.hpp"
#include "ssd/drive/command_path.hpp"
#include "ssd/flash/memory/memory_flash.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>

namespace gnstor::ssd {
namespace {

std::uint64_t seed_or(std::uint64_t fallback) {
    const char* text = std::getenv("GN_SEED");
    return text != nullptr ? std::strtoull(text, nullptr, 0) : fallback;
}

/// Queues that always have work, and what each was served.
struct Saturated {
    Arbiter arbiter;
    std::map<std::uint32_t, std::uint64_t> served;
    std::uint32_t run(std::uint32_t budget) {
        return arbiter.run(budget, [this](std::uint32_t queue, std::uint32_t limit) {
            served[queue] += limit;
            return limit;
        });
    }
};

TEST(Arbiter, SharesConvergeToTheWeightsWhateverTheBudgetsAndBursts) {
    const std::uint64_t seed = seed_or(1);
    std::mt19937_64 random(seed);
    std::uint64_t cases = 0;
    for (int round = 0; round < 200; ++round, ++cases) {
        Saturated s;
        const ArbitrationWeights w{1u << (random() % 7), static_cast<std::uint32_t>(1 + random() % 256),
                                   static_cast<std::uint32_t>(1 + random() % 256),
                                   static_cast<std::uint32_t>(1 + random() % 256)};
        s.arbiter.set_weights(w);
        const std::uint32_t queues[3] = {static_cast<std::uint32_t>(1 + random() % 4),
                                         static_cast<std::uint32_t>(1 + random() % 4),
                                         static_cast<std::uint32_t>(1 + random() % 4)};
        std::uint32_t id = 0;
        for (std::uint32_t cls = 0; cls < 3; ++cls)
            for (std::uint32_t i = 0; i < queues[cls]; ++i)
                s.arbiter.add(id++, static_cast<Priority>(cls + 1));
        const std::uint32_t unit = std::min(w.burst, 16u);
        const std::uint64_t round_commands = std::uint64_t{w.high + w.medium + w.low} * unit;
        std::uint64_t total = 0;
        while (total < round_commands * 40) {
            const auto budget = static_cast<std::uint32_t>(1 + random() % 300);
            ASSERT_EQ(s.run(budget), budget) << "seed " << seed << " round " << round;
            total += budget;
        }
        const std::uint32_t weights[3] = {w.high, w.medium, w.low};
        id = 0;
        for (std::uint32_t cls = 0; cls < 3; ++cls) {
            std::uint64_t of_class = 0;
            std::uint64_t least = ~0ull;
            std::uint64_t most = 0;
            for (std::uint32_t i = 0; i < queues[cls]; ++i, ++id) {
                of_class += s.served[id];
                least = std::min(least, s.served[id]);
                most = std::max(most, s.served[id]);
            }
            // At most one round is under way: the error is one class's credit, however long it runs.
            const double share = static_cast<double>(total) * weights[cls] / (w.high + w.medium + w.low);
            const double slack = static_cast<double>(weights[cls]) * unit + 1;
            EXPECT_NEAR(static_cast<double>(of_class), share, slack) << "seed " << seed << " round " << round;
            EXPECT_LE(most - least, w.burst) << "queues of one class: seed " << seed << " round " << round;
        }
    }
    std::printf("GN_COUNT arbiter_weightings=%llu\n", static_cast<unsigned long long>(cases));
}

TEST(Arbiter, UrgentQueuesAreServedBeforeAnyOther) {
    Saturated s;
    s.arbiter.add(0, Priority::kUrgent);
    s.arbiter.add(1, Priority::kHigh);
    s.arbiter.add(2, Priority::kUrgent);
    s.run(1000);
    EXPECT_EQ(s.served[1], 0u);
    EXPECT_NEAR(static_cast<double>(s.served[0]), static_cast<double>(s.served[2]), 16);
}

TEST(Arbiter, AnIdleClassAccumulatesNoShares) {
    Arbiter arbiter;
    arbiter.add(0, Priority::kHigh);
    arbiter.add(1, Priority::kLow);
    bool high_has_work = false;
    std::uint64_t served[2] = {};
    const auto fetch = [&](std::uint32_t queue, std::uint32_t limit) {
        if (queue == 0 && !high_has_work) return 0u;
        served[queue] += limit;
        return limit;
    };
    for (int i = 0; i < 100; ++i)
        EXPECT_EQ(arbiter.run(256, fetch), 256u) << "the only class with work must get the whole budget";
    served[1] = 0;
    high_has_work = true;
    for (int i = 0; i < 100; ++i) arbiter.run(160, fetch);
    EXPECT_NEAR(static_cast<double>(served[0]) / static_cast<double>(served[1]), 4.0, 0.1);
}

TEST(Arbiter, FeatureValuesComeBackAsTheyWereSet) {
    for (std::uint32_t ab = 0; ab < 8; ++ab)
        for (const std::uint32_t weights : {0x00000000u, 0x07030100u, 0xFFFFFF00u, 0x01FF8000u})
            EXPECT_EQ(ArbitrationWeights::decode(weights | ab).encode(), weights | ab);
    EXPECT_EQ(ArbitrationWeights{}.encode(), 0x07030104u);
}

TEST(Arbiter, DeletedQueuesDoNotAffectTheTurnsOfOthers) {
    Saturated s;
    for (std::uint32_t q = 0; q < 3; ++q) s.arbiter.add(q, Priority::kMedium);
    s.run(24);
    s.arbiter.remove(1);
    s.served.clear();
    s.run(1600);
    EXPECT_EQ(s.served[1], 0u);
    EXPECT_EQ(s.served[0], s.served[2]);
}

/// The same through a drive's command path: three queues that are refilled after each poll.
TEST(DriveArbitration, CompletionsOfSaturatedQueuesFollowTheWeightsOfTheirClasses) {
    auto flash = MemoryFlash::create({64, 64}).value();
    MemoryMetadata metadata(1u << 20);
    CommandPath path;
    auto engine = deengine::Engine::mount(*flash, metadata, {}, path).value();
    path.serve(*engine, {});
    constexpr Priority kPriorities[3] = {Priority::kHigh, Priority::kMedium, Priority::kLow};
    NvmeQueue* queues[3];
    for (std::uint16_t i = 0; i < 3; ++i)
        queues[i] = path.add(std::make_unique<ServedQueue>(static_cast<std::uint16_t>(1 + i), 512,
                                                           testing::kWriter, kPriorities[i], false));
    std::uint64_t answered[3] = {};
    std::uint64_t total = 0;
    nvme::Command command{};  // refused at once: arbitration alone is under test
    for (int round = 0; round < 400; ++round) {
        for (int i = 0; i < 3; ++i) {
            while (queues[i]->submit(command)) {
            }
            nvme::Completion completion;
            while (queues[i]->reap(completion)) ++answered[i];
        }
        path.poll();
    }
    for (const std::uint64_t n : answered) total += n;
    const double weights[3] = {8, 4, 2};
    for (int i = 0; i < 3; ++i)
        EXPECT_NEAR(static_cast<double>(answered[i]) / static_cast<double>(total), weights[i] / 14, 0.005)
            << i;
    std::printf("GN_COUNT arbitrated_commands=%llu\n", static_cast<unsigned long long>(total));
    for (auto* queue : queues) {
        path.close(queue);
        path.poll();
        path.remove(queue);
    }
}

TEST(DriveArbitration, OnlyTheArraysAdminHostSetsTheWeights) {
    DriveOptions options;
    options.capacity_bytes = 16u << 20;
    testing::DriveRig rig(options);
    NvmeQueue* stranger = rig.drive->create_queue(0, 16, 9, Priority::kUrgent, false).value();
    nvme::Command c{};
    c.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::kSetFeatures);
    c.flags = nvme::kFlagsSgl;
    c.cdw10 = static_cast<std::uint32_t>(nvme::Feature::kArbitration);
    c.cdw11 = 0x01020305;
    EXPECT_EQ(testing::call(*stranger, *rig.reactor, c).result(), nvme::Status::kFeatureNotChangeable);
    EXPECT_EQ(testing::call(*rig.admin, *rig.reactor, c).result(), nvme::Status::kSuccess);
    c.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::kGetFeatures);
    EXPECT_EQ(testing::call(*stranger, *rig.reactor, c).dw0, 0x01020305u);
    EXPECT_TRUE(rig.drive->delete_queue(stranger).ok());
}

}  // namespace
}  // namespace gnstor::ssd
