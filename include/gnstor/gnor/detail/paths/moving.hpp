// moving.hpp: bytes between pool buffers and the user's own memory, moved by the calling group. CPU and GPU
// lanes.
//
// One member's request at a time, all lanes copying 16 bytes each (docs/design.md, "The NIC"). Lengths are
// whole sectors and pool addresses whole blocks; the user's address may have any alignment.
#pragma once

#include <gnstor/simt/copy.hpp>
#include <gnstor/simt/group.hpp>

#include <cstdint>

namespace gnstor::gnor {

/// Copies for each member of `rest` in turn. Not inlined: a GPU's copy for any alignment is several thousand
/// instructions, which a request without a pool buffer would otherwise jump over in each round.
template <class Group>
GN_HD GN_NOINLINE void move_some(Group group, simt::LaneSet rest, std::uint64_t to, std::uint64_t from,
                                 std::uint32_t bytes) {
    group.sync();
    for (; !rest.empty(); rest = rest.without_lowest()) {
        const std::uint32_t who = rest.lowest();
        const std::uint64_t target = group.shfl(to, who);
        const std::uint64_t source = group.shfl(from, who);
        const std::uint32_t length = group.shfl(bytes, who);
        simt::copy16(group, reinterpret_cast<void*>(target), reinterpret_cast<const void*>(source), length);
    }
    // The owner may free or send the buffer only after every lane has copied its part.
    group.sync();
}

/// For each member with `moves`: copies `bytes` from `from` to `to`. All members call.
template <class Group>
GN_HD void move_each(Group group, bool moves, std::uint64_t to, std::uint64_t from, std::uint32_t bytes) {
    const simt::LaneSet movers = group.ballot(moves);
    if (!movers.empty()) move_some(group, movers, to, from, bytes);
}

}  // namespace gnstor::gnor
