// shutdown_flushes.hpp: which controllers of a subsystem wait for its device to be flushed before they are
// shut down. Pure.
//
// One flush at a time: a device that hangs is asked once, however often hosts shut controllers down, or come
// anew to do so. Who is told to shut down while one is under way may have been answered since it began, and
// waits for the next, which is for all who wait then. At most one entry a controller.
#pragma once

#include <cstdint>
#include <map>

namespace gnstor::nvmf {

class ShutdownFlushes {
  public:
    /// Controllers, and which of their shutdowns (Controllers::shutdown_ended).
    using Wanted = std::map<std::uint16_t, std::uint32_t>;

    void want(std::uint16_t controller_id, std::uint32_t shutdown) { wanted_[controller_id] = shutdown; }
    /// The controller is gone.
    void forget(std::uint16_t controller_id) { wanted_.erase(controller_id); }
    /// For whom a flush begins now; empty: for none. ended() follows.
    [[nodiscard]] Wanted begin() {
        if (under_way_ || wanted_.empty()) return {};
        under_way_ = true;
        Wanted now;
        now.swap(wanted_);
        return now;
    }
    void ended() { under_way_ = false; }

  private:
    Wanted wanted_;
    bool under_way_ = false;
};

}  // namespace gnstor::nvmf
