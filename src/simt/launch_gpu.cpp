// launch_gpu.cpp: a grid on GPU lanes, through the CUDA runtime. In a build without CUDA: clear errors.
//
// Owns: a non-blocking stream and an event per grid. CUDA's errors come back as values.
#include <gnstor/base/log.hpp>
#include <gnstor/simt/launch.hpp>

#include "simt/cuda_result.hpp"

#include <sched.h>

#include <ctime>

namespace gnstor::simt {

#if GN_WITH_CUDA

bool gpu_available() noexcept {
    int count = 0;
    if (cudaGetDeviceCount(&count) == cudaSuccess) return count > 0;
    (void)cudaGetLastError();  // clears the error, or the next call would report it
    return false;
}

Result<void> check_lanes(LanesKind kind) {
    if (kind == LanesKind::kCpu) return {};
    int count = 0;
    if (const cudaError_t code = cudaGetDeviceCount(&count); code != cudaSuccess) {
        (void)cudaGetLastError();
        return error(Errc::kUnsupported,
                     "GPU lanes: no GPU answers ({}); check nvidia-smi, or use --lanes cpu",
                     cudaGetErrorString(code));
    }
    if (count == 0) return error(Errc::kUnsupported, "GPU lanes: this machine has no GPU; use --lanes cpu");
    return {};
}

Result<void> ensure_lane_stack(LanesKind kind, std::size_t bytes) {
    if (kind == LanesKind::kCpu) return {};
    std::size_t now = 0;
    GN_TRY(cuda_result(cudaDeviceGetLimit(&now, cudaLimitStackSize), "tell the stack size of its lanes"));
    if (now >= bytes) return {};
    return cuda_result(cudaDeviceSetLimit(cudaLimitStackSize, bytes), "raise the stack size of its lanes");
}

namespace detail {
namespace {

class GpuGrid final : public GridRun {
  public:
    ~GpuGrid() override {
        if (event_ != nullptr) {
            constexpr std::uint64_t kComplainAfterNs = 30'000'000'000;
            for (bool ended = stream_ == nullptr; !ended;) {
                const Result<void> result = wait(Deadline::in_ns(kComplainAfterNs));
                ended = result.ok() || result.error().code != Errc::kTimedOut;
                if (!ended)
                    log_warn("still waiting for a kernel of {} blocks on the GPU to end", shape_.grid_blocks);
            }
            (void)cudaEventDestroy(event_);
        }
        if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
    }

    Result<void> start(GridShape shape, const void* entry, void* kernel, const LaunchOptions& options) {
        shape_ = shape;
        GN_TRY(cuda_result(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "create an event"));
        cudaStream_t stream = nullptr;
        GN_TRY(cuda_result(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "create a stream"));
        stream_ = stream;
        if (options.shared_bytes > 48u * 1024u)
            GN_TRY(cuda_result(cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                    static_cast<int>(options.shared_bytes)),
                               "allow the shared memory that each block of this kernel needs"));
        void* arguments[] = {kernel};
        GN_TRY(cuda_result(cudaLaunchKernel(entry, dim3(shape.grid_blocks), dim3(shape.block_threads),
                                            arguments, options.shared_bytes, stream),
                           "launch a kernel"));
        return cuda_result(cudaEventRecord(event_, stream), "record the kernel's end");
    }

    Result<void> wait(Deadline deadline) override {
        constexpr std::uint32_t kSpins = 2000;
        for (std::uint32_t round = 0;; ++round) {
            const cudaError_t code = cudaEventQuery(event_);
            if (code != cudaErrorNotReady) return cuda_result(code, "run a kernel");
            if (deadline.passed())
                return error(Errc::kTimedOut,
                             "a kernel of {} x {} GPU lanes was not done by its deadline; it still runs",
                             shape_.grid_blocks, shape_.block_threads);
            if (round < kSpins) {
                sched_yield();
            } else {
                const timespec nap{0, 50'000};
                nanosleep(&nap, nullptr);
            }
        }
    }

    bool done() override { return cudaEventQuery(event_) != cudaErrorNotReady; }

  private:
    GridShape shape_{};
    cudaEvent_t event_ = nullptr;
    cudaStream_t stream_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<GridRun>> start_on_gpu(GridShape shape, const void* entry, void* kernel,
                                              const LaunchOptions& options) {
    if (shape.grid_blocks == 0 || shape.block_threads == 0 || shape.block_threads > 1024)
        return error(Errc::kInvalidArgument,
                     "cannot launch a grid of {} blocks of {} lanes: use at least 1 block of 1 to 1024 lanes",
                     shape.grid_blocks, shape.block_threads);
    GN_TRY(check_lanes(LanesKind::kGpu));
    auto grid = std::make_unique<GpuGrid>();
    GN_TRY(grid->start(shape, entry, kernel, options));
    return std::unique_ptr<GridRun>(std::move(grid));
}

}  // namespace detail

#else  // a build without CUDA

bool gpu_available() noexcept {
    return false;
}

Result<void> check_lanes(LanesKind kind) {
    if (kind == LanesKind::kCpu) return {};
    return error(Errc::kUnsupported,
                 "GPU lanes: this build has none (no nvcc was found when it was configured); build with "
                 "GN_CUDA=ON, or "
                 "use --lanes cpu");
}

Result<void> ensure_lane_stack(LanesKind kind, std::size_t) {
    return check_lanes(kind);
}

namespace detail {
Result<std::unique_ptr<GridRun>> start_on_gpu(GridShape, const void*, void*, const LaunchOptions&) {
    return std::move(check_lanes(LanesKind::kGpu)).error();
}
}  // namespace detail

#endif

}  // namespace gnstor::simt
