// replicas.hpp: what each replica of a volume holds, read apart from the others.
//
// A reader's VolumeRef with a map of its own, in which one slot alone is *in*: reads then go to that slot or
// nowhere, and the SSD answers as to any reader, for the version is the active one. CPU lanes.
#pragma once

#include <cstring>
#include <vector>

#include "embedded/lanes_cases.hpp"
#include "embedded/rig.hpp"

namespace gnstor::test {

/// Calls visit(block, slot, words) for every block and every replica of it. Returns how many that were.
template <class Visit>
std::uint64_t for_each_replica(client::Client& reader, const std::string& name, Visit visit) {
    auto volume = reader.open(name, client::OpenMode::kRead).value();
    const placement::ArrayMap& whole = reader.array().map;
    const placement::VolumeGeometry geometry = volume->record().geometry;
    const std::uint32_t chunk = 1u << geometry.chunk_shift;
    std::vector<std::uint64_t> words(std::size_t{chunk} * kWordsPerBlock);
    std::uint64_t visited = 0;
    for (std::uint32_t slot = 0; slot < whole.slot_count; ++slot) {
        placement::ArrayMap one = whole;
        for (std::uint32_t s = 0; s < one.slot_count; ++s)
            if (s != slot && one.slots[s].state == placement::SlotState::kIn)
                one.slots[s].state = placement::SlotState::kRebuilding;
        const placement::LaneMap ranked = placement::LaneMap::of(one);
        const auto address = reinterpret_cast<std::uint64_t>(&ranked);
        VolumeRef ref = volume->ref();
        ref.current_map = &address;
        for (std::uint64_t first = 0; first < geometry.capacity_blocks; first += chunk) {
            const auto block = static_cast<std::uint32_t>(first);
            if (!placement::holds(placement::place(whole, geometry, block >> geometry.chunk_shift), slot))
                continue;
            const auto count =
                static_cast<std::uint32_t>(std::min<std::uint64_t>(chunk, geometry.capacity_blocks - first));
            const nvme::Status status = ref.read(simt::self(simt::Lane{}), reader.channel(0).ref(), block,
                                                 count, words.data(), late());
            EXPECT_EQ(status, nvme::Status::kSuccess) << "slot " << slot << ", block " << block;
            if (!nvme::ok(status)) return visited;
            for (std::uint32_t i = 0; i < count; ++i, ++visited)
                visit(block + i, slot, words.data() + std::size_t{i} * kWordsPerBlock);
        }
    }
    return visited;
}

/// Every replica of every block is whole and carries the tag that `expected` names for it.
template <class Expected>
std::uint64_t expect_tags(client::Client& reader, const std::string& name, std::uint64_t seed,
                          Expected expected) {
    std::uint64_t bad = 0;
    const std::uint64_t visited =
        for_each_replica(reader, name, [&](std::uint32_t block, std::uint32_t slot, const std::uint64_t* w) {
            const std::uint64_t tag = w[0];
            const bool good = tag == expected(block) && is_whole(w, seed, block);
            if (!good && ++bad <= 5)
                ADD_FAILURE() << "slot " << slot << " block " << block << ": tag " << std::hex << tag
                              << " for " << expected(block) << (is_whole(w, seed, block) ? "" : ", mixed")
                              << ", GN_SEED=" << std::dec << run_seed();
        });
    EXPECT_EQ(bad, 0u);
    return visited;
}

}  // namespace gnstor::test
