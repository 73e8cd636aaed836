// shutdown_flushes.hpp: the controllers of a subsystem whose shutdown waits for a flush of its device. Pure.
//
// One flush at a time: a device that hangs gets one request, however often hosts shut controllers down or
// reconnect to do so. A controller that is shut down during a flush may have had writes answered after that
// flush began, so it waits for the next one, which serves all that wait then. At most one entry for each
// controller.
#pragma once

#include <cstdint>
#include <map>

namespace gnstor::nvmf {

class ShutdownFlushes {
  public:
    /// Controller ids, each with the number of its shutdown (Controllers::shutdown_ended).
    using Wanted = std::map<std::uint16_t, std::uint32_t>;

    void want(std::uint16_t controller_id, std::uint32_t shutdown) { wanted_[controller_id] = shutdown; }
    /// The controller is gone.
    void forget(std::uint16_t controller_id) { wanted_.erase(controller_id); }
    /// The controllers of a flush that begins now, to be followed by ended(); empty: no flush.
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
