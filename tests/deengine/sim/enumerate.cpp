// enumerate.cpp: from letters to commands, and over all words.
#include "deengine/sim/enumerate.hpp"

#include <fmt/core.h>

namespace gnstor::deengine::sim {
namespace {

constexpr nvme::BlockAddress kBlocks[] = {255, 256};  // of two extents
constexpr std::uint64_t kEarlier = 10, kTrim = 15, kLater = 20;

std::string letter_name(std::uint32_t letter) {
    if (letter < 8)
        return fmt::format("write(volume {}, block {}, sequence {})", 1 + letter / 4, kBlocks[letter / 2 % 2],
                           letter % 2 == 0 ? kEarlier : kLater);
    if (letter < 10) return fmt::format("trim(volume {}, both blocks, sequence {})", letter - 7, kTrim);
    if (letter < 12) return fmt::format("delete and add(volume {})", letter - 9);
    return "flush";
}

void send(World& world, std::uint32_t letter) {
    if (letter < 8) {
        const auto vid = static_cast<nvme::VolumeId>(1 + letter / 4);
        world.deliver(world.make_write(vid, kBlocks[letter / 2 % 2], 1, letter % 2 == 0 ? kEarlier : kLater));
    } else if (letter < 10) {
        world.deliver(world.make_trim(static_cast<nvme::VolumeId>(letter - 7), {{0, 2, kBlocks[0]}}, kTrim));
    } else if (letter < 12) {
        world.delete_volume(static_cast<nvme::VolumeId>(letter - 9));
        if (!world.failed()) world.add_volume(static_cast<nvme::VolumeId>(letter - 9));
    } else {
        world.deliver(world.make_flush(1));
    }
}

/// Volumes and blocks may change names: of histories that differ in that alone one is enough.
bool is_first_of_its_kind(const std::vector<std::uint32_t>& letters) {
    for (const std::uint32_t letter : letters) {
        if (letter == 12) continue;
        const std::uint32_t volume = letter < 8 ? letter / 4 : (letter - 8) % 2;
        if (volume != 0) return false;
        break;
    }
    for (const std::uint32_t letter : letters)
        if (letter < 8) return letter / 2 % 2 == 0;
    return true;
}

}  // namespace

std::string run_script(const SimConfig& config, const std::vector<std::uint32_t>& letters, bool waits,
                       SimCounters& counters) {
    constexpr std::uint32_t kUntilAnswered = 5000;
    World world(config);
    world.begin();
    for (std::size_t i = 0; i < letters.size() && !world.failed(); ++i) {
        if (i + 1 == letters.size()) world.set_cuts(1000);
        send(world, letters[i]);
        if (waits && !world.failed()) world.idle(kUntilAnswered);
    }
    if (!world.failed()) world.cut_now();
    if (!world.failed()) world.idle(kUntilAnswered);
    if (!world.failed()) world.cut_now();
    if (!world.failed()) world.idle(8);
    world.set_cuts(0);
    world.end();
    counters.add(world.counters());
    if (!world.failed()) return {};
    std::string text = fmt::format("mode '{}', {}:", mode_name(config.mode),
                                   waits ? "each answered before the next" : "all sent at once");
    for (const std::uint32_t letter : letters) text += " " + letter_name(letter);
    return text + ": " + world.failure();
}

EnumerationResult enumerate(Mode mode, bool waits, std::uint32_t length, Mutation mutation,
                            const std::function<bool()>& stop) {
    EnumerationResult result;
    SimConfig config = scripted(mode);
    config.engine.mutation = mutation;
    for (std::uint32_t n = 1; n <= length; ++n) {
        std::vector<std::uint32_t> letters(n, 0);
        for (bool more = true; more;) {
            if (stop && stop()) return result;
            if (is_first_of_its_kind(letters)) {
                ++result.histories;
                result.failure = run_script(config, letters, waits, result.counters);
                if (!result.failure.empty()) return result;
            }
            more = false;
            for (std::uint32_t i = n; i-- > 0 && !more;) {
                letters[i] = (letters[i] + 1) % kLetters;
                more = letters[i] != 0;
            }
        }
    }
    return result;
}

}  // namespace gnstor::deengine::sim
