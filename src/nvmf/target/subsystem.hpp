// subsystem.hpp: one drive as the fabric sees it: its controllers, and the counters of its connections.
#pragma once

#include "nvmf/target/controllers.hpp"
#include "nvmf/target/shutdown_flushes.hpp"
#include "nvmf/target/target.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

namespace gnstor::nvmf {

/// A counter with one writer: no locked instruction on the data path. Relaxed: readers see some recent value.
class Counter {
  public:
    void add(std::uint64_t n = 1) { value_.store(get() + n, std::memory_order_relaxed); }
    [[nodiscard]] std::uint64_t get() const { return value_.load(std::memory_order_relaxed); }

  private:
    std::atomic<std::uint64_t> value_{0};
};

/// Counters of one connection; written only by its poller's thread.
struct ConnectionCounters {
    Counter capsules, reads, writes, flushes, trims, write_zeroes, admin, refused, drive_errors, malformed,
        bytes_to_host, bytes_to_drive, staged_writes, waits_for_memory, waits_for_turn;
    void add_to(SubsystemCounters& sum) const {
        sum.capsules += capsules.get();
        sum.reads += reads.get();
        sum.writes += writes.get();
        sum.flushes += flushes.get();
        sum.trims += trims.get();
        sum.write_zeroes += write_zeroes.get();
        sum.admin += admin.get();
        sum.refused += refused.get();
        sum.drive_errors += drive_errors.get();
        sum.malformed += malformed.get();
        sum.bytes_to_host += bytes_to_host.get();
        sum.bytes_to_drive += bytes_to_drive.get();
        sum.staged_writes += staged_writes.get();
        sum.waits_for_memory += waits_for_memory.get();
        sum.waits_for_turn += waits_for_turn.get();
    }
};

struct Subsystem : std::enable_shared_from_this<Subsystem> {
    Subsystem(SubsystemConfig c, const ControllerOptions& options, ControllerKind kind = ControllerKind::kIo)
        : config(std::move(c)), controllers(config.nqn, options, kind) {}

    const SubsystemConfig config;
    std::mutex mutex;  ///< guards `controllers`; taken for admin and fabrics commands and by the control
                       ///< thread, never for I/O
    Controllers controllers;
    ShutdownFlushes flushes;     ///< under the same mutex
    SubsystemCounters closed{};  ///< sum of connections that were destroyed; under the target's mutex
};

}  // namespace gnstor::nvmf
