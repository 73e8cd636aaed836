// config.cpp: from a seed to a configuration.
#include "deengine/sim/config.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

namespace gnstor::deengine::sim {
namespace {

constexpr std::uint8_t kUuid[16] = {0xD1, 2, 3};

Mode draw_mode(SplitMix64& random) {
    const std::uint64_t dice = random.below(10);
    if (kCapabilities.power_order && dice < 5) return dice < 4 ? Mode::kPower : Mode::kProcessPower;
    if (kCapabilities.synced_groups && dice == 5) return Mode::kProcessKillSync;
    return Mode::kProcessKill;
}

void set_mode(SimConfig& c, Mode mode, SplitMix64& random) {
    c.mode = mode;
    c.engine.volatile_cache = mode != Mode::kPower;
    c.medium.survives_kill = mode != Mode::kProcessKillSync;
    c.medium.power_cuts = c.cut_mode() == CutMode::kPower;
    c.medium.asynchronous = kCapabilities.synced_groups && random.below(2) == 0;
    c.medium.erase_reorders = random.below(2) == 0;
}

SimConfig common(std::uint64_t seed, std::uint64_t operations) {
    SimConfig c;
    c.seed = seed;
    c.operations = operations;
    std::memcpy(c.engine.ssd_uuid, kUuid, sizeof(kUuid));
    c.engine.max_volumes = 16;
    c.engine.mdts_blocks = 32;
    return c;
}

/// Units enough for the journal and something to collect.
FlashGeometry draw_geometry(SplitMix64& random, std::uint32_t shards) {
    const auto pages = static_cast<std::uint32_t>(4u << random.below(4));
    const std::uint32_t least = pages == 4 ? 30 : pages == 8 ? 20 : 14;
    return {static_cast<std::uint32_t>(least + random.below(least)) * shards, pages};
}

void draw_faults(SimConfig& c, SplitMix64& random) {
    c.medium.program_fails = static_cast<std::uint32_t>(random.below(1500));
    c.medium.erase_fails = static_cast<std::uint32_t>(random.below(4000));
    c.medium.corrections = static_cast<std::uint32_t>(random.below(3000));
    c.medium.remembers_bad = random.below(2) == 0;
    c.rot = static_cast<std::uint32_t>(random.below(8));
    c.rot_records = random.below(4) == 0;
    c.sync_failures = random.below(3) == 0 ? 1 : 0;
}

struct Range {
    std::uint32_t from;
    std::uint32_t more;
};

/// `hot`: of what it promises, in percent, from and how many more; `in_flight` likewise.
SimConfig draw_unpolled(std::uint64_t seed, std::uint64_t operations, Range hot, Range in_flight) {
    SplitMix64 random(mix64(seed) ^ 0x1A27);
    SimConfig c = draw_long(seed, operations);
    set_mode(c, random.below(2) == 0 ? Mode::kPower : Mode::kProcessPower, random);
    c.medium.program_fails = c.medium.erase_fails = 0;
    c.sync_failures = 0;
    c.rot_records = false;
    c.rot_moving = true;
    c.rot = static_cast<std::uint32_t>(15 + random.below(45));
    c.medium.views = 1;
    c.medium.geometry = {static_cast<std::uint32_t>(26 + random.below(20)), 4u << random.below(2)};
    c.engine.over_provisioning_percent = 7;
    c.hot_blocks = static_cast<std::uint32_t>(promised_blocks(c.medium.geometry, 1, c.engine) *
                                                  (hot.from + random.below(hot.more)) / 100 / c.volumes +
                                              1);
    c.max_blocks = 1;
    c.polls = 2;
    c.rest = 10;
    c.in_flight = static_cast<std::uint32_t>(in_flight.from + random.below(in_flight.more));
    c.admin = 1;
    c.crashes = 2;
    c.cuts = 100;
    c.nested = 0;
    return c;
}

}  // namespace

const char* mode_name(Mode mode) {
    switch (mode) {
        case Mode::kProcessKill:
            return "process, kill";
        case Mode::kProcessKillSync:
            return "process, kill, flash needs syncs";
        case Mode::kPower:
            return "power, power cut";
        case Mode::kProcessPower:
            return "process, power cut";
    }
    return "?";
}

std::vector<Mode> modes() {
    std::vector<Mode> all{Mode::kProcessKill};
    if (kCapabilities.synced_groups) all.push_back(Mode::kProcessKillSync);
    if (kCapabilities.power_order) {
        all.push_back(Mode::kPower);
        all.push_back(Mode::kProcessPower);
    }
    return all;
}

std::string SimConfig::describe() const {
    return fmt::format(
        "mode '{}', {} units of {} pages, {} shards, {} volumes of {} hot blocks, commands of up to {}, OP "
        "{} %, "
        "{} tombstones{}{}{}",
        mode_name(mode), medium.geometry.units, medium.geometry.pages_per_unit, medium.views, volumes,
        hot_blocks, max_blocks, engine.over_provisioning_percent, engine.max_tombstones,
        medium.asynchronous ? ", asynchronous syncs" : "", medium.erase_reorders ? ", erases reorder" : "",
        medium.program_fails != 0 || rot != 0 ? ", faults" : "");
}

SimConfig draw_long(std::uint64_t seed, std::uint64_t operations) {
    SplitMix64 random(mix64(seed) ^ 0x10);
    SimConfig c = common(seed, operations);
    if (kCapabilities.shards) c.medium.views = static_cast<std::uint32_t>(1 + random.below(3));
    c.medium.geometry = draw_geometry(random, c.medium.views);
    set_mode(c, draw_mode(random), random);
    c.volumes = static_cast<std::uint32_t>(1 + random.below(3));
    c.max_blocks = static_cast<std::uint32_t>(1 + random.below(6));
    c.late = static_cast<std::uint32_t>(1 + random.below(5));
    c.engine.over_provisioning_percent = static_cast<std::uint32_t>(7 + random.below(40));
    if (random.below(4) == 0) c.engine.max_tombstones = static_cast<std::uint32_t>(16 + random.below(64));
    if (random.below(3) == 0)
        c.engine.scrub_pages_per_second = static_cast<std::uint32_t>(random.below(20'000));
    // From nearly empty to more than fits.
    const auto promise = promised_blocks(c.medium.geometry, c.medium.views, c.engine);
    const auto share = random.below(4) == 0 ? 100 + random.below(15) : 5 + random.below(92);
    c.hot_blocks = static_cast<std::uint32_t>(promise * share / 100 / c.volumes + 1);
    if (!kCapabilities.collects) c.hot_blocks = c.hot_blocks / 3 + 1;
    if (kCapabilities.faults && random.below(3) == 0) draw_faults(c, random);
    return c;
}

SimConfig draw_rot(std::uint64_t seed, std::uint64_t operations) {
    SplitMix64 random(mix64(seed) ^ 0x207);
    SimConfig c = draw_long(seed, operations);
    c.rot = static_cast<std::uint32_t>(10 + random.below(60));
    c.rot_records = random.below(3) == 0;
    return c;
}

SimConfig draw_tight(std::uint64_t seed, std::uint64_t operations) {
    SplitMix64 random(mix64(seed) ^ 0x71647);
    SimConfig c = draw_long(seed, operations);
    c.medium.views = 1;
    c.medium.geometry = {static_cast<std::uint32_t>(24 + random.below(12)), 16u << random.below(2)};
    c.engine.checkpoint_pages_per_poll = 1;
    c.engine.buckets_per_part = static_cast<std::uint32_t>(2 + random.below(4));
    if (random.below(2) == 0) c.engine.max_tombstones = static_cast<std::uint32_t>(6 + random.below(40));
    c.engine.over_provisioning_percent = 7;
    c.long_idles = 3;
    // More blocks than the promise lets in at once, and a map that is nearly full with as many as it does.
    const auto promise = [&] { return promised_blocks(c.medium.geometry, c.medium.views, c.engine); };
    const std::uint64_t load = 86 + random.below(6);
    for (int i = 0; i < 3; ++i)  // fewer buckets leave more pages to data
        c.engine.map_keys_percent = static_cast<std::uint32_t>(
            std::max<std::uint64_t>(10, promise() * 9000 / load / c.medium.geometry.pages() + 1));
    c.hot_blocks = static_cast<std::uint32_t>(promise() * (115 + random.below(20)) / 100 / c.volumes + 1);
    c.max_blocks = 6;
    c.admin = 2;
    c.cuts = 2;
    c.nested = 10;
    return c;
}

SimConfig draw_clients(std::uint64_t seed, std::uint64_t operations) {
    SplitMix64 random(mix64(seed) ^ 0xC11E);
    SimConfig c = draw_long(seed, operations);
    c.rot = c.sync_failures = 0;
    c.medium.program_fails = c.medium.erase_fails = 0;
    c.strangers = 150;
    c.admin = 40;
    c.slots = static_cast<std::uint32_t>(1 + random.below(4));
    if (random.below(2) == 0) {
        c.grant_ms = static_cast<std::uint32_t>(500 + random.below(5000));
        c.long_idles = 10;
    }
    return c;
}

SimConfig draw_kills(std::uint64_t seed, std::uint64_t operations) {
    SplitMix64 random(mix64(seed) ^ 0x4B11);
    SimConfig c = draw_long(seed, operations);
    set_mode(c, random.below(4) != 0 ? Mode::kPower : Mode::kProcessPower, random);
    // Full, so that recovery has to erase before its checkpoint is there.
    c.medium.geometry = {static_cast<std::uint32_t>(16 + random.below(10)) * c.medium.views, 8};
    c.hot_blocks = static_cast<std::uint32_t>(promised_blocks(c.medium.geometry, c.medium.views, c.engine) *
                                                  (95 + random.below(30)) / 100 / c.volumes +
                                              1);
    c.kills_first = 500;
    c.crashes = 60;
    c.cuts = 1;
    c.nested = 5;
    return c;
}

SimConfig draw_sparse(std::uint64_t seed, std::uint64_t operations) {
    SplitMix64 random(mix64(seed) ^ 0x59A5E);
    SimConfig c = draw_long(seed, operations);
    c.sync_failures = 0;
    c.rot_records = false;
    c.rot = random.below(3) == 0 ? static_cast<std::uint32_t>(10 + random.below(40)) : 0;
    c.medium.program_fails = c.medium.erase_fails = 0;
    // Units that never had room are left while the disk is full: few blocks, many units.
    c.hot_blocks = static_cast<std::uint32_t>(promised_blocks(c.medium.geometry, c.medium.views, c.engine) *
                                                  (10 + random.below(50)) / 100 / c.volumes +
                                              1);
    c.full_disk = static_cast<std::uint32_t>(5 + random.below(20));
    c.admin = static_cast<std::uint32_t>(10 + random.below(60));
    c.crashes = static_cast<std::uint32_t>(5 + random.below(60));
    c.long_idles = 5;
    c.cuts = 10;
    return c;
}

SimConfig draw_spare(std::uint64_t seed, std::uint64_t operations) {
    SplitMix64 random(mix64(seed) ^ 0x5BA3);
    SimConfig c = draw_long(seed, operations);
    set_mode(c, random.below(4) != 0 ? Mode::kPower : Mode::kProcessPower, random);
    c.medium.program_fails = c.medium.erase_fails = 0;
    c.sync_failures = 0;
    c.rot = 30;
    c.rot_records = true;
    c.rot_journal = 1000;
    c.crashes = 30;
    c.cuts = 2;
    return c;
}

SimConfig draw_full(std::uint64_t seed, std::uint64_t operations) {
    SplitMix64 random(mix64(seed) ^ 0xF011);
    SimConfig c = draw_long(seed, operations);
    set_mode(c, Mode::kPower, random);
    c.medium.erase_reorders = true;
    c.medium.program_fails = c.medium.erase_fails = 0;
    c.rot = c.sync_failures = 0;
    c.rot_records = false;
    c.medium.views = 1;
    c.medium.geometry = draw_geometry(random, 1);
    c.engine.over_provisioning_percent = 7;
    c.hot_blocks = static_cast<std::uint32_t>(
        promised_blocks(c.medium.geometry, 1, c.engine) * (85 + random.below(16)) / 100 / c.volumes + 1);
    c.max_blocks = 8;
    c.admin = 1;
    c.crashes = static_cast<std::uint32_t>(10 + random.below(130));
    c.cuts = c.nested = 0;
    return c;
}

SimConfig draw_loss(std::uint64_t seed, std::uint64_t operations) {
    SplitMix64 random(mix64(seed) ^ 0x1055);
    SimConfig c = draw_full(seed, operations);
    c.crashes = 5;
    c.rot = 3;
    c.rot_records = c.rot_lonely = true;
    c.late = 1;
    return c;
}

SimConfig draw_lazy(std::uint64_t seed, std::uint64_t operations) {
    return draw_unpolled(seed, operations, {35, 35}, {40, 60});
}

SimConfig draw_idle(std::uint64_t seed, std::uint64_t operations) {
    SimConfig c = draw_unpolled(seed, operations, {40, 40}, {80, 150});
    c.rest = 40;
    return c;
}

SimConfig draw_wide(std::uint64_t seed, std::uint64_t operations) {
    SimConfig c = draw_idle(seed, operations);
    c.max_blocks = 3;
    return c;
}

SimConfig draw_records(std::uint64_t seed, std::uint64_t operations) {
    SplitMix64 random(mix64(seed) ^ 0x2EC);
    SimConfig c = draw_long(seed, operations);
    set_mode(c, Mode::kProcessKill, random);
    c.medium.program_fails = c.medium.erase_fails = 0;
    c.rot = c.sync_failures = 0;
    c.rot_records = false;
    c.lose_records = 500;
    c.long_idles = 5;
    c.crashes = 30;
    c.admin = 2;
    c.cuts = c.nested = 2;
    return c;
}

SimConfig draw_short(std::uint64_t seed, std::uint64_t operations) {
    SplitMix64 random(mix64(seed) ^ 0x5);
    SimConfig c = common(seed, operations);
    c.medium.geometry = {static_cast<std::uint32_t>(26 + random.below(8)), 4};
    set_mode(c, draw_mode(random), random);
    c.volumes = static_cast<std::uint32_t>(1 + random.below(2));
    c.max_blocks = static_cast<std::uint32_t>(1 + random.below(3));
    c.hot_blocks = static_cast<std::uint32_t>(1 + random.below(4));
    c.engine.over_provisioning_percent = 30;
    c.crashes = 15;
    c.admin = 40;
    c.cuts = 1000;
    c.images = 2;
    c.nested = 15;
    c.depth = 2;
    c.every_torn_class = true;
    return c;
}

SimConfig scripted(Mode mode) {
    SplitMix64 random(1);
    SimConfig c = common(1, 0);
    c.medium.geometry = {26, 4};
    set_mode(c, mode, random);
    c.medium.asynchronous = false;
    c.engine.over_provisioning_percent = 30;
    c.volumes = 2;
    c.cuts = 0;
    c.nested = 0;
    c.every_torn_class = true;
    return c;
}

}  // namespace gnstor::deengine::sim
