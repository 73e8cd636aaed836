// config.hpp: everything a simulated history depends on, drawn from its seed.
//
// Equal configuration, equal history, to the last flash operation: a failing seed replays exactly. Each step
// draws from a generator of its own (seed, step), so that leaving steps out (shrinking) changes no other
// step's dice.
#pragma once

#include "deengine/front/engine.hpp"
#include "deengine/shard/shard_room.hpp"
#include "deengine/sim/medium.hpp"

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace gnstor::deengine::sim {

/// What the engine under test can do; a history asks for no more.
struct Capabilities {
    bool collects = false;       ///< garbage collection: histories may overwrite for ever
    bool power_order = false;    ///< survives a reordering write cache
    bool synced_groups = false;  ///< waits for asynchronous syncs, flash that does not survive a kill
    bool faults = false;         ///< bad units, rotten pages
    bool shards = false;
    bool closes = false;
};
template <class E>
concept SecondForm = requires(E& e) {
    e.close();
};
inline constexpr bool kSecond = SecondForm<Engine>;
inline constexpr Capabilities kCapabilities{kSecond, kSecond, kSecond, kSecond, kSecond, kSecond};

enum class Mode : std::uint8_t {
    kProcessKill,      ///< durability = process, flash survives a kill
    kProcessKillSync,  ///< the same on a flash whose programs need a sync to survive a kill
    kPower,            ///< durability = power, cuts of power
    kProcessPower,     ///< durability = process, cuts of power: FLUSH and FUA alone are promises
};
const char* mode_name(Mode mode);
/// Those that the engine under test is made for.
std::vector<Mode> modes();

struct SimConfig {
    std::uint64_t seed = 1;
    std::uint64_t operations = 2000;
    Mode mode = Mode::kProcessKill;
    MediumOptions medium;
    EngineOptions engine;
    std::uint32_t volumes = 2;
    std::uint32_t hot_blocks = 16;  ///< of each volume
    std::uint32_t max_blocks = 4;   ///< of a command
    std::uint32_t late = 3;         ///< commands of a volume that wait to be delivered, in any order
    // Dice of a step, in thousand.
    std::uint32_t crashes = 3;
    std::uint32_t admin = 12;
    std::uint32_t rot = 0;
    std::uint32_t sync_failures = 0;
    std::uint32_t full_disk = 0;  ///< the disk below gets full, or has room again
    // Of a client's steps, in thousand (0 also leaves every other step's dice as they are).
    std::uint32_t strangers = 0;     ///< by those who may not, or under what is over (strangers.cpp)
    std::uint32_t long_idles = 0;    ///< some seconds in which only poll() runs
    std::uint32_t slots = 1;         ///< of the array; this drive fills the first
    std::uint32_t grant_ms = 0;      ///< of each MAP SET; 0: for ever
    std::uint32_t kills_first = 0;   ///< of the cuts of power, in thousand: a kill, whose boot may be cut too
    std::uint32_t rot_journal = 0;   ///< of the rot, in thousand: of a checkpoint, and the power goes
    std::uint32_t lose_records = 0;  ///< of the kills, in thousand: records of data pages are lost in them
    bool rot_lonely = false;         ///< the rot: records of young pages that alone hold their block
    bool rot_moving = false;     ///< the rot: contents that no checkpoint names, of the next to be collected
    std::uint32_t polls = 1000;  ///< of the steps that poll, flush or set a floor; the others write
    std::uint32_t in_flight = 24;  ///< not in thousand: commands, before the drive is polled until none is
    std::uint32_t rest = 0;        ///< not in thousand: polls behind those
    bool rot_records = false;      ///< also what names a block, and pages of the journal: a mount may refuse
    // Cuts that are looked at and thrown away, in thousand flash operations; images of each.
    std::uint32_t cuts = 20;
    std::uint32_t images = 1;
    std::uint32_t nested = 30;  ///< the same during recovery from them
    std::uint32_t depth = 2;    ///< cuts within cuts
    bool every_torn_class = false;
    bool trace = false;                ///< keep what was done, for people
    std::set<std::uint64_t> left_out;  ///< steps that are not done (shrinking)

    [[nodiscard]] CutMode cut_mode() const {
        return mode == Mode::kProcessKill || mode == Mode::kProcessKillSync ? CutMode::kKill
                                                                            : CutMode::kPower;
    }
    [[nodiscard]] bool answers_are_durable() const { return mode != Mode::kProcessPower; }
    [[nodiscard]] std::string describe() const;
};

/// A long history under garbage collection, faults and crashes that it goes on after.
SimConfig draw_long(std::uint64_t seed, std::uint64_t operations);
/// The same on a flash on which pages rot all the time.
SimConfig draw_rot(std::uint64_t seed, std::uint64_t operations);
/// The map nearly full and written in small slices, tables small, long idle periods.
SimConfig draw_tight(std::uint64_t seed, std::uint64_t operations);
/// A drive of an array with more clients, and strangers, than its volumes' writers; grants that end.
SimConfig draw_clients(std::uint64_t seed, std::uint64_t operations);
/// Kills whose next boot is cut off from power.
SimConfig draw_kills(std::uint64_t seed, std::uint64_t operations);
/// A sparse store on a disk that is full again and again, and cut meanwhile.
SimConfig draw_sparse(std::uint64_t seed, std::uint64_t operations);
/// Cuts, and rot of the newest checkpoint behind each.
SimConfig draw_spare(std::uint64_t seed, std::uint64_t operations);
/// A drive about as full as it promises to be, and cut for good so often that its collector comes to no end.
SimConfig draw_full(std::uint64_t seed, std::uint64_t operations);
/// The same, until the record rots of a young page that is all there is of its block: such a mount is
/// refused, and asked to go on without that block.
SimConfig draw_loss(std::uint64_t seed, std::uint64_t operations);
/// A drive that is hardly ever polled, so that its groups are as long as its free units last: what one group
/// empties the next erases. Pages rot that no checkpoint names yet and that are soon collected.
SimConfig draw_lazy(std::uint64_t seed, std::uint64_t operations);
/// The same with longer groups, fuller; and of commands of up to three blocks.
SimConfig draw_idle(std::uint64_t seed, std::uint64_t operations);
SimConfig draw_wide(std::uint64_t seed, std::uint64_t operations);
/// Kills, and records that are lost in them, in both copies: of one page, or of the last pages of a unit.
SimConfig draw_records(std::uint64_t seed, std::uint64_t operations);
/// A short one: every flash operation is cut, in every class of torn state.
SimConfig draw_short(std::uint64_t seed, std::uint64_t operations);
/// A drive for a script, in a given mode: nothing is left to dice but fates.
SimConfig scripted(Mode mode);

}  // namespace gnstor::deengine::sim
