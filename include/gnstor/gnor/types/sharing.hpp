// sharing.hpp: which lanes use a channel at once, and the scope of the atomics that they then need. CPU and
// GPU lanes.
#pragma once

#include <gnstor/simt/atomic.hpp>

#include <cstdint>

namespace gnstor {

/// Which lanes use a channel: chosen when it is opened, and in the type of the view that a kernel takes.
///   kGrid   any lanes of any blocks at once (atomics of device scope);
///   kBlock  the lanes of one block, any at once (atomics of block scope: they end in the SM's own cache);
///   kLane   one lane alone, with simt::self (no atomics at all, no lock, no ready words: loads and stores).
/// NIC and host see the same in all of them, and a later kernel may use other lanes.
enum class Sharing : std::uint32_t { kGrid = 0, kBlock = 1, kLane = 2 };

namespace gnor {
GN_HD
constexpr simt::Scope scope_of(Sharing sharing) {
    if (sharing == Sharing::kLane) return simt::Scope::kLane;
    return sharing == Sharing::kBlock ? simt::Scope::kBlock : simt::Scope::kDevice;
}
}  // namespace gnor
}  // namespace gnstor
