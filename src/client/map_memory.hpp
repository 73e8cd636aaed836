// map_memory.hpp: the array's map in memory that lanes read. Written by one host thread at a time, while
// kernels run and read it.
//
// A published map is never changed: a newer one goes to new memory, then the address word is switched. Old
// maps stay allocated as long as this object lives, because a lane may still be using one (docs/array.md,
// rule 4: one immutable map object per operation).
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/placement/placement.hpp>
#include <gnstor/simt/atomic.hpp>
#include <gnstor/simt/device_memory.hpp>

#include <cstdint>
#include <vector>

namespace gnstor::client {

class MapMemory {
  public:
    static Result<MapMemory> create(const placement::ArrayMap& map, simt::LanesKind lanes) {
        MapMemory memory;
        GN_ASSIGN(memory.address_, simt::DeviceMemory::allocate(sizeof(std::uint64_t), lanes));
        GN_TRY(memory.publish(map));
        return memory;
    }
    Result<void> publish(const placement::ArrayMap& map) {
        const placement::LaneMap ranked = placement::LaneMap::of(map);
        GN_ASSIGN(simt::DeviceMemory memory, simt::DeviceMemory::allocate(sizeof ranked, address_.lanes()));
        GN_TRY(memory.upload(0, &ranked, sizeof ranked));
        const auto address = reinterpret_cast<std::uint64_t>(memory.lane_data());
        maps_.push_back(std::move(memory));
        if (address_.lanes() == simt::LanesKind::kGpu) return address_.upload(0, &address, sizeof address);
        // Release: pairs with the acquire of Operation::load_map, so that a lane that sees the map sees all
        // of it.
        simt::store_release<simt::Scope::kSystem>(address_.lane_as<std::uint64_t>(), address);
        return {};
    }
    /// The value for VolumeRef::current_map.
    [[nodiscard]] const std::uint64_t* current() const { return address_.lane_as<std::uint64_t>(); }

  private:
    simt::DeviceMemory address_;
    std::vector<simt::DeviceMemory> maps_;
};

}  // namespace gnstor::client
