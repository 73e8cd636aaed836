// central_engine.hpp: an array engine in the manner of before deEngine: a program on the node's CPU through
// which every request goes. It locks the blocks, looks their address up in a mapping table, has SSDs read or
// write them, and answers a write only when the log of the mapping's change is durable. Host.
//
// How it stands for the real thing
//   * SSDs are addressed as an engine addresses them: by the blocks of one pool volume of one replica, whose
//     chunks the engine gives out; replicas, placement and permission are its own business. Writes go to
//     fresh blocks and the table is switched afterwards, so that no crash leaves half a write;
//   * the log is a ring of blocks in the pool, each written to `replicas` SSDs. One log, ordered, as recovery
//     needs it; what was appended while a block is on its way goes out together with the next one (group
//     commit);
//   * a client's capsule crosses the emulated wire once, from the engine's queue pairs, and data moves
//     between SSD and client directly: the hop between client and engine is a ring in shared memory. Dearer
//     in truth: in the engine's favour.
//
// Threads: a client has a connection to one engine thread or, where there are more threads than clients, to
// several, as a polled target gives out queue pairs; table, allocator and log are shared by all. A connection
// fills its threads one after the other, so that few requests do not wake many.
#pragma once

#include <gnstor/base/spsc_ring.hpp>

#include "bench/initiators/block_table.hpp"
#include "bench/initiators/change_log.hpp"
#include "bench/initiators/extents.hpp"
#include "bench/initiators/polled_queues.hpp"
#include "bench/initiators/stage_timer.hpp"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace gnstor::bench {

/// What a client sends, and what comes back.
struct CentralRequest {
    Request request;
    std::uint32_t client;
};

struct CentralOptions {
    std::uint32_t threads = 8;
    std::uint32_t clients = 1;
    std::uint32_t replicas = 2;
    std::uint64_t volume_bytes = 0;  ///< of each client
    std::uint32_t depth = 32;        ///< requests under way of one client's stream
    bool fua = false;                ///< on all that SSDs are asked for, the log's blocks, too
};

/// Sums of all engine threads over one run.
struct CentralTimes {
    std::uint64_t requests = 0, writes = 0, log_blocks = 0, conflicts = 0;
    std::uint64_t log_ns = 0;  ///< from a write's data being there to its log record being durable
    StageSums work{};          ///< of all threads
    double cpu_seconds = 0;
};

class CentralEngine {
  public:
    /// `buffers`: keys of the memory that requests' buffers lie in.
    static Result<std::unique_ptr<CentralEngine>> open(client::ControlPlane& control, rdma::Nic& nic,
                                                       const CentralOptions& options,
                                                       rdma::MemoryKeys buffers);
    ~CentralEngine();
    CentralEngine(const CentralEngine&) = delete;
    CentralEngine& operator=(const CentralEngine&) = delete;

    /// A connection of a client. Control path; engine threads stand still.
    Result<std::unique_ptr<Port>> connect(std::uint32_t client);
    [[nodiscard]] nvme::VolumeId volume(std::uint32_t client) const {
        return static_cast<nvme::VolumeId>(client + 1);
    }

    void start();
    /// Connections are idle. Returns what the threads did since start().
    CentralTimes stop();
    /// Commands sent to SSDs, by all threads, ever.
    [[nodiscard]] std::uint64_t commands() const;

  private:
    class Worker;
    class Connection;
    friend class Worker;
    explicit CentralEngine(const CentralOptions& options);
    Result<void> create_pool(client::ControlPlane& control, rdma::Nic& nic, rdma::MemoryKeys buffers);

    const CentralOptions options_;
    std::unique_ptr<HostClient> pool_client_;
    std::unique_ptr<BlockTable> table_;
    std::unique_ptr<Extents> extents_;
    std::unique_ptr<ChangeLog> log_;
    std::vector<std::unique_ptr<Worker>> workers_;
    std::vector<std::jthread> threads_;
};

}  // namespace gnstor::bench
