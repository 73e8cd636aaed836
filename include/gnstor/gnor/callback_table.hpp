// callback_table.hpp: a table of device functions, called by index, for the C API: in memory that lanes see,
// set up on the host.
//
// Only device code knows the address of a device function, so a kernel of one lane, with the function as a
// template argument, writes the entry. One host thread. An entry is set before requests name it, and stays
// until they are done: they call the function in the entry at that time, or none if it belongs to another
// module.
#pragma once

#include <gnstor/gnor/types/callbacks.hpp>
#include <gnstor/simt/device_memory.hpp>
#include <gnstor/simt/launch.hpp>

#include <cstdint>
#include <utility>

namespace gnstor {

/// The view that a kernel takes by value.
struct CallbackTableRef {
    const CallbackEntry* entries = nullptr;
    std::uint32_t count = 0;

    GN_HD
    bool has(std::uint32_t index) const { return index < count; }
    /// The handler that calls entry `index` (has(index)) with `argument`.
    GN_HD
    TableCallback at(std::uint32_t index, void* argument) const {
        return TableCallback{entries, index, argument};
    }
};

namespace gnor {
template <Callback kFunction>
struct StoreCallback {
    CallbackEntry* to;
    GN_HD
    void operator()(simt::Lane) const { *to = {kFunction, this_module()}; }
};
}  // namespace gnor

class CallbackTable {
  public:
    /// A table of `entries` entries for lanes of this kind.
    static Result<CallbackTable> create(simt::LanesKind lanes, std::uint32_t entries) {
        if (entries == 0)
            return error(Errc::kInvalidArgument, "a callback table cannot have 0 entries; give at least 1");
        GN_ASSIGN(auto memory, simt::DeviceMemory::allocate(entries * sizeof(CallbackEntry), lanes));
        return CallbackTable(lanes, entries, std::move(memory));
    }
    /// Stores a function in an entry. Compiled by nvcc where lanes are on a GPU.
    template <Callback kFunction>
    Result<void> set(std::uint32_t index) {
        if (index >= entries_)
            return error(Errc::kInvalidArgument,
                         "cannot set callback {}: the table has {} entries, counted from 0", index, entries_);
        return simt::launch(lanes_, 1, 1,
                            gnor::StoreCallback<kFunction>{memory_.lane_as<CallbackEntry>() + index});
    }
    [[nodiscard]] CallbackTableRef ref() const {
        return CallbackTableRef{memory_.lane_as<CallbackEntry>(), entries_};
    }

  private:
    CallbackTable(simt::LanesKind lanes, std::uint32_t entries, simt::DeviceMemory memory)
        : lanes_(lanes), entries_(entries), memory_(std::move(memory)) {}

    simt::LanesKind lanes_;
    std::uint32_t entries_;
    simt::DeviceMemory memory_;
};

}  // namespace gnstor
