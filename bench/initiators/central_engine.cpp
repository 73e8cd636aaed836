// central_engine.cpp: set-up of a central array engine: the pool, its blocks, the threads.
#include "bench/initiators/central_engine.hpp"

#include "bench/initiators/central_worker.hpp"

#include <algorithm>

namespace gnstor::bench {
namespace {

constexpr std::uint64_t kChunkBytes = std::uint64_t{Extents::kChunkBlocks} * nvme::kBlockBytes;
constexpr std::uint32_t kLogChunks = 16;  // of the log's ring, on each replica
constexpr std::uint32_t kLogUnderWay = 4;

}  // namespace

/// A client's end of the rings.
class CentralEngine::Connection final : public Port {
  public:
    Connection(std::vector<WorkerRings*> rings, std::uint32_t client, std::uint32_t depth)
        : client_(client), enough_((depth + rings.size() - 1) / rings.size()) {
        for (WorkerRings* one : rings) ends_.push_back(End{one, 0});
    }
    [[nodiscard]] bool post(const Request& request) override {
        End* chosen = &ends_.front();
        for (End& end : ends_) {
            if (end.under_way < chosen->under_way) chosen = &end;
            if (end.under_way >= enough_) continue;
            chosen = &end;
            break;
        }
        if (!chosen->rings->requests->try_push(CentralRequest{request, client_})) return false;
        ++chosen->under_way;
        return true;
    }
    void flush() override {}
    std::uint32_t poll(std::span<Answer> answers) override {
        std::size_t given = 0;
        for (End& end : ends_) {
            if (end.under_way == 0) continue;
            const std::size_t n = end.rings->answers->pop_some(answers.subspan(given));
            end.under_way -= n;
            given += n;
        }
        return static_cast<std::uint32_t>(given);
    }
    [[nodiscard]] std::uint64_t commands() const override { return 0; }

  private:
    struct End {
        WorkerRings* rings;
        std::size_t under_way;
    };
    const std::uint32_t client_;
    const std::size_t enough_;  ///< requests of a thread before the next one is given any
    std::vector<End> ends_;
};

CentralEngine::CentralEngine(const CentralOptions& options) : options_(options) {}

Result<std::unique_ptr<CentralEngine>> CentralEngine::open(client::ControlPlane& control, rdma::Nic& nic,
                                                           const CentralOptions& options,
                                                           rdma::MemoryKeys buffers) {
    std::unique_ptr<CentralEngine> e(new CentralEngine(options));
    GN_TRY(e->create_pool(control, nic, buffers));
    return e;
}

Result<void> CentralEngine::create_pool(client::ControlPlane& control, rdma::Nic& nic,
                                        rdma::MemoryKeys buffers) {
    const std::uint64_t data = options_.volume_bytes * options_.clients * options_.replicas;
    const std::uint64_t under_way =
        std::uint64_t{options_.clients} * options_.depth * options_.replicas * kChunkBytes;
    client::CreateVolume pool;
    pool.name = "pool";
    // Half as much again: SSDs' shares of the pool are uneven, and engines fill them evenly.
    const std::uint64_t stocks =
        std::uint64_t{options_.threads} * 64 * ExtentStock::kBlocksMost * nvme::kBlockBytes;
    pool.capacity_bytes = (data * 3 / 2 + 2 * under_way + stocks + (64u << 20)) / kChunkBytes * kChunkBytes;
    pool.chunk_bytes = kChunkBytes;
    pool.replicas = 1;
    GN_ASSIGN(pool_client_,
              HostClient::open(control, nic, "array-engine", pool, options_.threads, options_.fua));
    const placement::ArrayMap& map = pool_client_->map();
    std::vector<std::uint8_t> ssd_of_chunk(pool.capacity_bytes / kChunkBytes);
    for (std::uint32_t c = 0; c < ssd_of_chunk.size(); ++c)
        ssd_of_chunk[c] = placement::place(map, pool_client_->record().geometry, c).slot[0];
    extents_ = std::make_unique<Extents>(std::move(ssd_of_chunk), map.slot_count);
    table_ = std::make_unique<BlockTable>(
        options_.clients, static_cast<std::uint32_t>(options_.volume_bytes / nvme::kBlockBytes),
        options_.replicas);
    log_ = std::make_unique<ChangeLog>(kLogUnderWay);
    std::vector<std::uint32_t> ring;  // block i of the log, replica r: ring[i * replicas + r]
    for (std::uint32_t c = 0; c < kLogChunks; ++c) {
        std::uint32_t chunk[placement::kMaxReplicas];
        for (std::uint32_t r = 0; r < options_.replicas; ++r) {
            chunk[r] = extents_->take((c + r) % map.slot_count, Extents::kOrders - 1);
            if (chunk[r] == Extents::kNone)
                return error(Errc::kNoSpace,
                             "the buffer pool of the central array engine has no room for its log on SSD {}",
                             (c + r) % map.slot_count);
        }
        for (std::uint32_t b = 0; b < Extents::kChunkBlocks; ++b)
            for (std::uint32_t r = 0; r < options_.replicas; ++r) ring.push_back(chunk[r] + b);
    }
    for (std::uint32_t i = 0; i < options_.threads; ++i) {
        const WorkerShared shared{*table_, *extents_, *log_, ring, options_.replicas, i};
        GN_ASSIGN(std::unique_ptr<Worker> worker, Worker::open(shared, *pool_client_, nic, buffers));
        workers_.push_back(std::move(worker));
    }
    return {};
}

CentralEngine::~CentralEngine() {
    if (!threads_.empty()) (void)stop();
}

Result<std::unique_ptr<Port>> CentralEngine::connect(std::uint32_t client) {
    const std::uint32_t width = (options_.threads + options_.clients - 1) / options_.clients;
    std::vector<WorkerRings*> rings;
    for (std::uint32_t i = 0; i < width; ++i) {
        GN_ASSIGN(WorkerRings * one, workers_[(client * width + i) % workers_.size()]->add_connection());
        rings.push_back(one);
    }
    return std::unique_ptr<Port>(std::make_unique<Connection>(std::move(rings), client, options_.depth));
}

void CentralEngine::start() {
    for (const auto& worker : workers_) {
        worker->prepare();
        threads_.emplace_back([w = worker.get()] { w->run(); });
    }
}

CentralTimes CentralEngine::stop() {
    for (const auto& worker : workers_) worker->stop();
    threads_.clear();  // joins
    CentralTimes all;
    for (const auto& worker : workers_) {
        const CentralTimes& t = worker->times();
        all.requests += t.requests;
        all.writes += t.writes;
        all.log_blocks += t.log_blocks;
        all.conflicts += t.conflicts;
        all.log_ns += t.log_ns;
        all.cpu_seconds += t.cpu_seconds;
        for (std::size_t s = 0; s < kStages; ++s) all.work[s] += t.work[s];
    }
    return all;
}

std::uint64_t CentralEngine::commands() const {
    std::uint64_t all = 0;
    for (const auto& worker : workers_) all += worker->commands();
    return all;
}

}  // namespace gnstor::bench
