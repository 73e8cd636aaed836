// load_lanes_gpu.cu: the harness' kernels on GPU lanes: warps of 32, four a block; copies by cudaMemcpyAsync.
#include "bench/initiators/load_lanes.inl"

#include <cuda_runtime.h>

#include <deque>

namespace gnstor::bench {
namespace {

Result<void> checked(cudaError_t code, const char* tried) {
    if (code == cudaSuccess) return {};
    return error(Errc::kIo, "cannot {}: {}", tried, cudaGetErrorString(code));
}

/// A stream of its own; one event a sealed batch, so that asking costs once a batch and not once a copy.
class GpuCopier final : public Copier {
  public:
    Result<void> open() {
        GN_TRY(checked(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                       "create a stream for copies"));
        for (cudaEvent_t& event : events_)
            GN_TRY(checked(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                           "create an event for copies"));
        return {};
    }
    ~GpuCopier() override {
        if (stream_ != nullptr) (void)cudaStreamSynchronize(stream_);
        for (cudaEvent_t event : events_)
            if (event != nullptr) (void)cudaEventDestroy(event);
        if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
    }
    void begin(std::uint32_t tag, void* to, const void* from, std::size_t bytes) override {
        note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_));
        open_.push_back(tag);
    }
    void seal() override {
        // Without a free event the copies wait for the next seal, together with those to come.
        if (open_.empty() || batches_.size() == kEvents) return;
        note(cudaEventRecord(events_[next_event_], stream_));
        batches_.push_back(Batch{events_[next_event_], std::move(open_)});
        open_.clear();
        next_event_ = (next_event_ + 1) % kEvents;
    }
    std::uint32_t poll(std::span<std::uint32_t> tags) override {
        std::uint32_t given = 0;
        while (!batches_.empty() && given < tags.size()) {
            Batch& oldest = batches_.front();
            if (oldest.done == 0 && cudaEventQuery(oldest.event) == cudaErrorNotReady) break;
            while (oldest.done < oldest.tags.size() && given < tags.size())
                tags[given++] = oldest.tags[oldest.done++];
            if (oldest.done < oldest.tags.size()) break;
            batches_.pop_front();
        }
        return given;
    }
    [[nodiscard]] Result<void> error() const override { return checked(first_, "copy between host and GPU"); }

  private:
    static constexpr std::size_t kEvents = 64;
    struct Batch {
        cudaEvent_t event;
        std::vector<std::uint32_t> tags;
        std::size_t done = 0;
    };
    void note(cudaError_t code) {
        if (first_ == cudaSuccess) first_ = code;
    }
    cudaStream_t stream_ = nullptr;
    cudaEvent_t events_[kEvents] = {};
    std::size_t next_event_ = 0;
    std::vector<std::uint32_t> open_;
    std::deque<Batch> batches_;
    cudaError_t first_ = cudaSuccess;
};

class GpuLoadLanes final : public LoadLanesBase {
  public:
    GpuLoadLanes()
        : LoadLanesBase(simt::LanesKind::kGpu, simt::kWarpLanes, kLoadBlockThreads / simt::kWarpLanes) {}
    [[nodiscard]] std::string gpu_name() const override {
        cudaDeviceProp properties{};
        return cudaGetDeviceProperties(&properties, 0) == cudaSuccess ? properties.name
                                                                      : "a GPU of unknown name";
    }
    [[nodiscard]] std::uint32_t depth_max() const override { return simt::kWarpLanes * 4; }
    /// One warp takes some 2 us to read 4 KiB over PCIe: eight keep up with a CPU thread.
    [[nodiscard]] std::uint32_t mailboxes_a_stream() const override { return 8; }
    Result<std::unique_ptr<Copier>> make_copier() override {
        auto copier = std::make_unique<GpuCopier>();
        GN_TRY(copier->open());
        return std::unique_ptr<Copier>(std::move(copier));
    }

  protected:
    /// All resident at once: no warp waits for another.
    [[nodiscard]] std::uint32_t consumer_warps_max() const override { return 1024; }
};

}  // namespace

std::unique_ptr<LoadLanes> make_gpu_load_lanes() {
    return std::make_unique<GpuLoadLanes>();
}

}  // namespace gnstor::bench
