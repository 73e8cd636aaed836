// manager_takeover.hpp: what Manager::start() gathers before it decides. Used by manager_start.cpp,
// manager_older_ssd.cpp and manager_read_only.cpp.
#pragma once

#include "daemon/decisions/manager.hpp"

#include <algorithm>
#include <set>

namespace gnstor::daemon {

struct Manager::Takeover {
    std::vector<std::vector<nvme::VolumeRecord>> seen;  ///< by index of drives_
    std::vector<std::uint64_t> terms;  ///< by index of drives_; 0: no daemon has ever contacted the drive
    std::uint64_t newest_term = 0;
    nvme::Epoch highest_epoch = 0;
    bool store_empty = false;
    /// The newest that an SSD of the array, or an SSD whose map names one of them, has stored. Without records: of any
    /// SSD.
    placement::ArrayMap newest_map{};
    std::vector<placement::ArrayMap> maps;  ///< by index of drives_: the newest that the drive has stored
    std::vector<bool> out;                  ///< by index of drives_: its slot was out at the start
    bool map_adopted = false;               ///< it is newer than that of the records
    std::set<nvme::VolumeId> touched;       ///< records adopted from drives
    Change change;                          ///< stored before anything is sent

    void note_map(const placement::ArrayMap& map) {
        if (map.version > newest_map.version) newest_map = map;
    }
    [[nodiscard]] bool has(std::size_t drive, nvme::VolumeId id) const {
        return std::any_of(seen[drive].begin(), seen[drive].end(),
                           [id](const nvme::VolumeRecord& r) { return r.geometry.volume == id; });
    }
};

}  // namespace gnstor::daemon
