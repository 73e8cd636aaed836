// central_worker.hpp: one thread of a central array engine: what it does with each request. Host; run() on
// its own thread, the rest while that does not run.
//
// Invariants
//   * a request's blocks are locked from before the table is looked at until its last SSD has answered;
//   * the table names fresh blocks only once they are written on all replicas; old blocks are given back,
//     and a write is answered, only when the log's record of the change is durable.
#pragma once

#include "bench/initiators/central_engine.hpp"

#include <deque>

namespace gnstor::bench {

/// One connection's rings: this worker at one end, the client's thread at the other.
struct WorkerRings {
    std::unique_ptr<SpscRing<CentralRequest>> requests;
    std::unique_ptr<SpscRing<Answer>> answers;
};

/// What all workers share; outlives them.
struct WorkerShared {
    BlockTable& table;
    Extents& extents;
    ChangeLog& log;
    std::vector<std::uint32_t> log_ring;  ///< pool block of log block i, replica r, at [i * replicas + r]
    std::uint32_t replicas;
    std::uint32_t index;  ///< of the worker: where it begins to look for SSDs
};

class CentralEngine::Worker {
  public:
    static Result<std::unique_ptr<Worker>> open(const WorkerShared& shared, HostClient& pool, rdma::Nic& nic,
                                                rdma::MemoryKeys buffers);
    ~Worker();
    /// Valid while the worker lives.
    Result<WorkerRings*> add_connection();

    void prepare();
    void run();
    /// Any thread: run() ends when nothing is under way.
    void stop() { stop_.store(true, std::memory_order_relaxed); }
    [[nodiscard]] const CentralTimes& times() const { return times_; }
    [[nodiscard]] std::uint64_t commands() const { return queues_->commands(); }

  private:
    static constexpr std::uint32_t kLogTag = 0x80000000u;
    static constexpr std::uint32_t kLogSlots = ChangeLog::kUnderWayMax;
    struct Op {
        CentralRequest from{};
        WorkerRings* rings = nullptr;
        nvme::Status worst = nvme::Status::kSuccess;
        std::uint32_t left = 0;                             ///< answers that SSDs owe
        std::uint32_t unsent = 0;                           ///< pieces that are not posted yet
        std::uint32_t first[placement::kMaxReplicas] = {};  ///< write: fresh runs
        /// Write: where replica r of block b was, at [r * blocks + b].
        std::uint32_t old[Extents::kChunkBlocks * placement::kMaxReplicas] = {};
        std::uint64_t record = 0;
        std::uint64_t logged_ns = 0;
    };
    /// A command to be posted.
    struct Piece {
        std::uint32_t op;
        std::uint32_t pool_block;
        std::uint16_t blocks;
        std::uint16_t offset_blocks;  ///< in the request's buffer
    };

    Worker(const WorkerShared& shared) : shared_(shared), stock_(shared.extents) {}
    bool round();
    bool take_requests();
    bool begin_waiting();
    bool log_unlogged();
    bool begin(std::uint32_t op);
    void begin_read(std::uint32_t op);
    bool begin_write(std::uint32_t op);
    bool post_pieces();
    bool take_answers();
    void finish_read(std::uint32_t op);
    void finish_write(std::uint32_t op);
    void switch_addresses(Op& op);
    void give_back_old(const Op& op);
    bool write_log();
    bool answer_logged();
    void answer(std::uint32_t op, nvme::Status status);

    const WorkerShared shared_;
    std::unique_ptr<PolledQueues> queues_;
    rdma::Nic* nic_ = nullptr;
    std::unique_ptr<LogBlock[]> log_blocks_;  // registered
    rdma::MemoryKeys log_keys_{};
    bool registered_ = false;
    struct LogSlot {
        std::uint64_t number = 0;
        std::uint32_t left = 0, unsent = 0;
    };
    std::array<LogSlot, kLogSlots> log_slots_{};

    std::vector<std::unique_ptr<WorkerRings>> connections_;
    std::vector<Op> ops_;  // grows with connections alone
    ExtentStock stock_;
    std::vector<std::uint32_t> free_ops_;
    std::deque<std::uint32_t> waiting_;  // for locks, room or the log
    std::deque<Piece> pieces_;
    std::deque<std::uint32_t> unlogged_;  // their record has no place in the open block yet
    std::deque<std::uint32_t> logged_;    // in order of their records
    std::uint32_t next_ssd_ = 0;
    std::uint32_t under_way_ = 0;
    std::uint64_t now_ns_ = 0;
    std::atomic<bool> stop_{false};  // relaxed: nothing is ordered by it
    CentralTimes times_;
    StageTimer timer_;
};

}  // namespace gnstor::bench
