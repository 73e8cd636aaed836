// recovery_test.cpp: a shard is cut at every flash operation, also while it recovers, and what was
// acknowledged is there.
#include "deengine/shard_rig.hpp"

#include <cstdlib>

namespace gnstor::deengine::test {
namespace {

using sim::CutMode;

std::uint64_t seed_from_environment(std::uint64_t otherwise) {
    const char* seed = std::getenv("GN_SEED");
    return seed != nullptr ? std::strtoull(seed, nullptr, 10) : otherwise;
}

EngineOptions shard_options(bool power) {
    EngineOptions o;
    o.volatile_cache = !power;
    o.mdts_blocks = 8;
    o.max_volumes = 16;
    o.max_tombstones = 64;
    return o;
}

Expectation two_volumes() {
    Expectation e;
    e.lives.volumes[1] = {1, 48};
    e.lives.volumes[2] = {1, 48};
    return e;
}

MediumOptions small_medium(bool power) {
    MediumOptions m;
    m.geometry = {24, 8};
    m.power_cuts = power;
    return m;
}

/// Any fate for each uncertain operation.
Medium::Fates random_fates(std::uint64_t seed) {
    auto random = std::make_shared<SplitMix64>(seed);
    const std::uint64_t style = random->below(4);
    return [random, style](std::size_t, std::size_t, const sim::Operation&, bool) {
        if (style == 0) return Fate::absent();
        if (style == 1) return Fate::whole();
        switch (random->below(4)) {
            case 0:
                return Fate::absent();
            case 1:
                return Fate::torn(static_cast<std::uint32_t>(random->below(4097)),
                                  static_cast<std::uint32_t>(random->below(65)),
                                  random->below(2) * random->next());
            case 2:
                return Fate::torn(4096, static_cast<std::uint32_t>(random->below(64)));
            default:
                return Fate::whole();
        }
    };
}

/// In a kill the operation under way is torn in order, data first; whatever went before is there.
Medium::Fates kill_fates(std::uint64_t seed) {
    auto random = std::make_shared<SplitMix64>(seed);
    return [random](std::size_t, std::size_t, const sim::Operation& op, bool) {
        switch (random->below(4)) {
            case 0:
                return Fate::absent();
            case 1:
                return Fate::whole();
            case 2:
                return Fate::torn(static_cast<std::uint32_t>(
                                      random->below(op.kind == sim::Operation::Kind::kErase ? 8 : 4097)),
                                  0);
            default:
                return op.kind == sim::Operation::Kind::kErase
                           ? Fate::torn(3, 0)
                           : Fate::torn(4096, static_cast<std::uint32_t>(random->below(64)));
        }
    };
}

struct Tally {
    std::uint64_t cuts = 0, recoveries = 0, blocks = 0, torn = 0, checkpoints = 0;
};

/// Mounts an image, cutting the recovery itself at a random operation as long as `depth` allows; then checks,
/// and checks once more after a clean mount.
std::string recover(std::unique_ptr<Medium> image, Expectation expected, const EngineOptions& options,
                    CutMode mode, std::uint64_t seed, int depth, Tally& tally) {
    SplitMix64 random(seed);
    ShardRig rig(std::move(image), std::move(expected), options);
    std::unique_ptr<Medium> again;
    std::uint64_t countdown = depth > 0 ? random.below(30) : ~0ull;
    if (depth > 0) {
        rig.medium->on_operation = [&](Medium& m) {
            if (countdown-- == 0)
                again =
                    m.image(mode, mode == CutMode::kPower ? random_fates(seed + 1) : kill_fates(seed + 1));
        };
    }
    ++tally.recoveries;
    const Result<void> mounted = rig.mount();
    rig.medium->on_operation = nullptr;
    if (again != nullptr)
        return recover(std::move(again), rig.expected, options, mode, seed + 7, depth - 1, tally);
    if (!mounted.ok()) return mounted.error().message;
    if (!rig.medium->violation().empty()) return rig.medium->violation();
    if (rig.report.blocks_lost != 0 || rig.report.pages_unreadable != 0) return "blocks were lost";
    tally.torn += rig.report.pages_torn;
    if (std::string why = rig.check(); !why.empty()) return why;
    // Some more, then everything again from what is there.
    for (int i = 0; i < 4; ++i) {
        rig.write(1, static_cast<nvme::BlockAddress>(random.below(48)), random.below(4) == 0);
        rig.shard->poll(0);
    }
    if (random.below(2) == 0) {
        rig.shard->settle();
        const Result<void> closed = rig.shard->close();
        if (!closed.ok()) return closed.error().message;
    }
    if (const Result<void> second = rig.mount(); !second.ok())
        return "second mount: " + second.error().message;
    if (std::string why = rig.check(); !why.empty()) return "second mount: " + why;
    tally.blocks += rig.blocks_checked;
    return rig.medium->violation();
}

void storm(bool power, std::uint64_t seed, int commands, Tally& tally, std::uint32_t cut_every) {
    SplitMix64 random(seed);
    const EngineOptions options = shard_options(power);
    ShardRig rig(std::make_unique<Medium>(small_medium(power)), two_volumes(), options);
    std::uint64_t operation = 0;
    std::string why;
    const CutMode mode = power ? CutMode::kPower : CutMode::kKill;
    rig.medium->on_operation = [&](Medium& m) {
        if (++operation % cut_every != 0 || !why.empty()) return;
        ++tally.cuts;
        const std::uint64_t cut_seed = mix64(seed * 1'000'003 + operation);
        auto image = m.image(mode, power ? random_fates(cut_seed) : kill_fates(cut_seed));
        why = recover(std::move(image), rig.expected, options, mode, cut_seed, 3, tally);
        if (!why.empty()) why += fmt::format(" (GN_SEED={}, cut at operation {})", seed, operation);
    };
    ASSERT_TRUE(rig.mount().ok());
    for (int i = 0; i < commands && why.empty(); ++i) {
        const auto volume = static_cast<nvme::VolumeId>(1 + random.below(2));
        const auto block = static_cast<nvme::BlockAddress>(random.below(44));
        rig.write(volume, block, random.below(5) == 0, 1 + static_cast<std::uint32_t>(random.below(4)));
        if (random.below(3) == 0) rig.shard->poll(0);
        if (random.below(16) == 0) rig.shard->set_floor(volume, 1, rig.expected.sequence);
    }
    ASSERT_EQ(why, "");
    rig.shard->settle();
    tally.checkpoints += rig.shard->counters().checkpoints;
    ASSERT_EQ(rig.check(), "");
    ASSERT_EQ(rig.medium->violation(), "");
}

void print(const char* name, const Tally& t) {
    std::printf("GN_COUNT deengine_recovery_%s_cuts=%llu\nGN_COUNT deengine_recovery_%s_blocks=%llu\n", name,
                static_cast<unsigned long long>(t.cuts), name, static_cast<unsigned long long>(t.blocks));
    std::printf("%s: %llu cuts, %llu recoveries, %llu torn pages, %llu checkpoints\n", name,
                static_cast<unsigned long long>(t.cuts), static_cast<unsigned long long>(t.recoveries),
                static_cast<unsigned long long>(t.torn), static_cast<unsigned long long>(t.checkpoints));
}

TEST(Recovery, AnAcknowledgedWriteSurvivesAKillAtEveryFlashOperation) {
    Tally tally;
    const std::uint64_t seed = seed_from_environment(1);
    for (std::uint64_t i = 0; i < 4 && !HasFatalFailure(); ++i) storm(false, seed + i, 300, tally, 1);
    print("kill", tally);
}

TEST(Recovery, AnAcknowledgedWriteSurvivesAPowerCutAtEveryFlashOperation) {
    Tally tally;
    const std::uint64_t seed = seed_from_environment(1);
    for (std::uint64_t i = 0; i < 4 && !HasFatalFailure(); ++i) storm(true, seed + i, 300, tally, 1);
    print("power", tally);
}

}  // namespace
}  // namespace gnstor::deengine::test
