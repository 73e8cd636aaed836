// staged_windows.hpp: windows on the loop wire that are the NIC's own memory, as they are on other wires.
// Without such an object, a window on the loop wire is the peer's memory itself. Only tests make them.
#pragma once

#include "rdma/nic/memory_table.hpp"
#include "rdma/nic/nic.hpp"

#include <cstdint>

namespace gnstor::rdma {

struct QueuePair;

/// One object for each engine of a NIC (NicOptions::stage_windows); that engine's thread only, except
/// constructor and destructor.
class StagedWindows {
  public:
    virtual ~StagedWindows() = default;
    /// `pin`: of the peer's memory, or a fault, for which NicEngine::fail() is due when the window's bytes
    /// are needed. The caller has counted the window (QueuePair::add_window). A window for writing is ready
    /// at once, one for reading later: MessageSink::on_window_ready().
    virtual void open(QueuePair& qp, const MemoryTable::Pin& pin, std::uint32_t bytes, WindowUse use,
                      Window& window) = 0;
    /// Closes a window for reading that was ready, or one for writing; unpins the peer's memory, and calls
    /// MessageSink::on_window_freed().
    virtual void close(QueuePair& qp, const Window& window, bool filled) = 0;
};

}  // namespace gnstor::rdma
