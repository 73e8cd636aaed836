// loop_wire.hpp: the wire inside one process: NICs by address, listeners, connection requests, and the
// engines.
//
// Messages travel as references: the engine that executes a send entry hands the receiver pointers into the
// sender's memory, or copies straight to the receiver's. No loss, no order but the sender's.
//
// The rule of ownership: both ends of a connection are executed by one engine, so that no lock is needed
// between them: that of the offload end, or else that of the end that accepted. Engines belong to the wire,
// one a reactor, shared by all NICs with a poller there. When a connection ends, the other end moves back to
// an engine of its own NIC.
//
// Threads: control calls lock one mutex; engines never do. Connection requests are answered in a thread of
// the wire's own, so that a caller can give up in time.
#pragma once

#include <gnstor/base/result.hpp>

#include <memory>

namespace gnstor::rdma {

class LoopWire {
  public:
    LoopWire();
    /// All NICs on it must be gone.
    ~LoopWire();
    LoopWire(const LoopWire&) = delete;
    LoopWire& operator=(const LoopWire&) = delete;

  private:
    friend class SoftNic;
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace gnstor::rdma
