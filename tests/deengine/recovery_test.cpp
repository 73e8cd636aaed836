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

struct Storm {
    bool power = false;         ///< cuts of power, and durability = power
    bool survives_kill = true;  ///< the flash: programs need no sync to survive a kill
    std::uint32_t fails = 0;    ///< programs and erasures that fail, in a million
    bool remembers_bad = true;  ///< the flash knows after a cut which units failed
    bool asynchronous = false;  ///< syncs end later
    bool purges = false;        ///< volumes are deleted, and their VIDs given out again
    FlashGeometry geometry{24, 8};
    int commands = 300;
    std::uint32_t cut_every = 1;
    Mutation mutation = Mutation::kNone;
};

MediumOptions medium_of(const Storm& storm) {
    MediumOptions m;
    m.geometry = storm.geometry;
    m.power_cuts = storm.power;
    m.survives_kill = storm.survives_kill;
    m.program_fails = m.erase_fails = storm.fails;
    m.remembers_bad = storm.remembers_bad;
    m.asynchronous = storm.asynchronous;
    return m;
}

/// Any fate for each uncertain operation.
Medium::Fates random_fates(std::uint64_t seed) {
    auto random = std::make_shared<SplitMix64>(seed);
    const std::uint64_t style = random->below(4);
    return [random, style](std::size_t, std::size_t, const sim::Operation&, bool) {
        if (style == 0) return Fate::absent();
        if (style == 1 || (style == 2 && random->below(8) != 0)) return Fate::whole();
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
    // Faults were the session's; another one would be a second failure at once.
    image->options().program_fails = image->options().erase_fails = 0;
    ShardRig rig(std::move(image), std::move(expected), options);
    std::unique_ptr<Medium> again;
    std::uint64_t countdown = depth > 0 ? random.below(30) : ~0ull;
    if (depth > 0) {
        rig.medium->on_operation = [&](Medium& m) {
            if (countdown-- == 0)
                again = m.image(mode, mode == CutMode::kPower || !m.options().survives_kill
                                          ? random_fates(seed + 1)
                                          : kill_fates(seed + 1));
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
    if (const auto wrong = rig.shard->audit(); !wrong.empty()) return "audit: " + wrong.front();
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

/// The volume ends, and its VID begins another life.
void purge(ShardRig& rig, nvme::VolumeId volume) {
    std::erase_if(rig.expected.blocks, [&](const auto& b) { return key_volume(b.first) == volume; });
    for (auto& [tag, keys] : rig.in_flight)
        std::erase_if(keys, [&](BlockKey key) { return key_volume(key) == volume; });
    rig.shard->settle();
    const auto life = rig.expected.lives.volumes[volume];
    rig.expected.lives.volumes.erase(volume);
    static_cast<void>(rig.shard->purge(volume));
    rig.expected.lives.volumes[volume] = {++rig.expected.epoch, life.capacity};
}

/// Random commands, cut at every operation; why it failed, or nothing.
std::string storm(const Storm& s, std::uint64_t seed, Tally& tally) {
    SplitMix64 random(seed);
    EngineOptions options = shard_options(s.power);
    options.mutation = s.mutation;
    ShardRig rig(std::make_unique<Medium>(medium_of(s)), two_volumes(), options);
    rig.medium->reseed(seed);
    std::uint64_t operation = 0;
    std::string why;
    const CutMode mode = s.power ? CutMode::kPower : CutMode::kKill;
    const bool reorders = s.power || !s.survives_kill;
    rig.medium->on_operation = [&](Medium& m) {
        if (++operation % s.cut_every != 0 || !why.empty()) return;
        ++tally.cuts;
        const std::uint64_t cut_seed = mix64(seed * 1'000'003 + operation);
        auto image = m.image(mode, reorders ? random_fates(cut_seed) : kill_fates(cut_seed));
        why = recover(std::move(image), rig.expected, options, mode, cut_seed, 3, tally);
        if (!why.empty()) why += fmt::format(" (GN_SEED={}, cut at operation {})", seed, operation);
    };
    if (const Result<void> mounted = rig.mount(); !mounted.ok()) return mounted.error().message;
    for (int i = 0; i < s.commands && why.empty(); ++i) {
        const auto volume = static_cast<nvme::VolumeId>(1 + random.below(2));
        const auto block = static_cast<nvme::BlockAddress>(random.below(44));
        rig.write(volume, block, random.below(5) == 0, 1 + static_cast<std::uint32_t>(random.below(4)));
        if (random.below(3) == 0) rig.shard->poll(0);
        if (random.below(16) == 0) rig.shard->set_floor(volume, rig.expected.epoch, rig.expected.sequence);
        if (s.purges && random.below(24) == 0) purge(rig, volume);
    }
    if (!why.empty()) return why;
    rig.shard->settle();
    tally.checkpoints += rig.shard->counters().checkpoints;
    if (why = rig.check(); !why.empty()) return why + fmt::format(" (GN_SEED={}, at the end)", seed);
    return rig.medium->violation();
}

void print(const char* name, const Tally& t) {
    std::printf("GN_COUNT deengine_recovery_%s_cuts=%llu\nGN_COUNT deengine_recovery_%s_blocks=%llu\n", name,
                static_cast<unsigned long long>(t.cuts), name, static_cast<unsigned long long>(t.blocks));
    std::printf("%s: %llu cuts, %llu recoveries, %llu torn pages, %llu checkpoints\n", name,
                static_cast<unsigned long long>(t.cuts), static_cast<unsigned long long>(t.recoveries),
                static_cast<unsigned long long>(t.torn), static_cast<unsigned long long>(t.checkpoints));
}

void run(const char* name, const Storm& s, std::uint64_t seeds) {
    Tally tally;
    const std::uint64_t seed = seed_from_environment(1);
    for (std::uint64_t i = 0; i < seeds; ++i) ASSERT_EQ(storm(s, seed + i, tally), "");
    print(name, tally);
}

TEST(Recovery, AnAcknowledgedWriteSurvivesAKillAtEveryFlashOperation) {
    run("kill", {}, 2);
}

TEST(Recovery, AnAcknowledgedWriteSurvivesAKillOnFlashThatForgetsWhatWasNotSynced) {
    Storm s;
    s.survives_kill = false;
    s.asynchronous = true;
    run("forgetful", s, 2);
}

TEST(Recovery, AnAcknowledgedWriteSurvivesAPowerCutAtEveryFlashOperation) {
    Storm s;
    s.power = true;
    run("power", s, 2);
}

TEST(Recovery, CutsAndFailingUnitsTogetherLoseNothing) {
    Storm s;
    s.power = true;
    s.asynchronous = true;
    s.fails = 3000;
    s.geometry = {40, 8};
    run("failing", s, 1);
    s.remembers_bad = false;
    run("failing_forgotten", s, 1);
}

TEST(Recovery, NoBlockOfADeletedVolumeReappearsUnderItsReusedVid) {
    Storm s;
    s.purges = true;
    run("purge_kill", s, 1);
    s.power = true;
    run("purge_power", s, 1);
}

/// A full shard that is cut again and again, mostly while it recovers, and goes on from what it finds.
std::string chain(bool power, FlashGeometry geometry, std::uint64_t seed, int boots, Tally& tally) {
    SplitMix64 random(seed);
    Storm s;
    s.power = power;
    s.geometry = geometry;
    const EngineOptions options = shard_options(power);
    auto medium = std::make_unique<Medium>(medium_of(s));
    Expectation expected = two_volumes();
    for (int boot = 0; boot < boots; ++boot) {
        ShardRig rig(std::move(medium), std::move(expected), options);
        std::uint64_t countdown = random.below(4) == 0 ? 20 + random.below(120) : random.below(16);
        std::unique_ptr<Medium> next;
        Expectation then;
        rig.medium->on_operation = [&](Medium& m) {
            if (next != nullptr || countdown-- != 0) return;
            const CutMode mode = power ? CutMode::kPower : CutMode::kKill;
            next = m.image(mode, power ? random_fates(random.next()) : kill_fates(random.next()));
            then = rig.expected;
            ++tally.cuts;
        };
        ++tally.recoveries;
        if (const auto mounted = rig.mount(); !mounted.ok() && next == nullptr)
            return fmt::format("{} (GN_SEED={}, boot {})", mounted.error().message, seed, boot);
        std::string why;
        if (next == nullptr) why = rig.check();
        if (next == nullptr && why.empty())
            if (const auto wrong = rig.shard->audit(); !wrong.empty()) why = "audit: " + wrong.front();
        if (!why.empty()) return fmt::format("{} (GN_SEED={}, boot {})", why, seed, boot);
        tally.torn += rig.report.pages_torn;
        // As many blocks as may be mapped, written over and over.
        const std::uint64_t blocks =
            next == nullptr ? std::min<std::uint64_t>(96, rig.shard->page_limit()) : 0;
        for (int i = 0; i < 400 && next == nullptr; ++i) {
            const std::uint64_t at = random.below(blocks);
            rig.write(static_cast<nvme::VolumeId>(1 + at / 48), static_cast<nvme::BlockAddress>(at % 48),
                      random.below(12) == 0);
            if (random.below(2) == 0) rig.shard->poll(0);
            if (rig.last_status == nvme::Status::kCapacityExceeded && blocks < 90)
                return fmt::format("a full shard has no room any more (GN_SEED={}, boot {})", seed, boot);
        }
        if (!rig.medium->violation().empty()) return rig.medium->violation();
        tally.blocks += rig.blocks_checked;
        if (next == nullptr) {
            rig.shard->settle();
            then = rig.expected;
            next = rig.medium->image(CutMode::kKill, [](auto&&...) { return Fate::whole(); });
        }
        medium = std::move(next);
        expected = std::move(then);
    }
    return {};
}

TEST(Recovery, AFullShardCutRepeatedlyLosesNeitherBlocksNorSpace) {
    Tally tally;
    const std::uint64_t seed = seed_from_environment(1);
    for (std::uint64_t i = 0; i < 3; ++i) {
        for (const FlashGeometry geometry :
             {FlashGeometry{17, 8}, FlashGeometry{36, 4}, FlashGeometry{11, 16}}) {
            ASSERT_EQ(chain(false, geometry, seed + i, 200, tally), "") << geometry.units << " units";
            ASSERT_EQ(chain(true, geometry, seed + i, 200, tally), "") << geometry.units << " units";
        }
    }
    print("chain", tally);
}

TEST(Recovery, TheTestDetectsABrokenRecoveryRule) {
    for (const Mutation mutation :
         {Mutation::kIgnoreOobCrc, Mutation::kApplyOutdatedPage, Mutation::kCheckpointBeforeLog}) {
        Storm s;
        s.power = true;
        s.purges = mutation == Mutation::kApplyOutdatedPage;
        s.mutation = mutation;
        Tally tally;
        std::string why;
        std::uint64_t seeds = 0;
        while (why.empty() && seeds < 40) why = storm(s, ++seeds, tally);
        std::printf("mutation %d: seed %llu: %s\n", static_cast<int>(mutation),
                    static_cast<unsigned long long>(seeds), why.c_str());
        EXPECT_NE(why, "") << "mutation " << static_cast<int>(mutation);
    }
}

}  // namespace
}  // namespace gnstor::deengine::test
