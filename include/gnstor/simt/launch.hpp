// launch.hpp: runs a kernel on GPU or CPU lanes; one source for both.
//
// A kernel is a trivially copyable callable `GN_HD void operator()(simt::Lane) const`. Compiled by nvcc it
// can be launched on either kind of lanes, by the host compiler on CPU lanes alone. The kind is chosen by the
// caller and never changes silently: GPU lanes without a GPU, or from code that nvcc did not compile, are an
// Error.
//
// CPU lanes: W worker threads take lanes off the grid in order and run each to its end, so a grid may be far
// larger than W. A lane must therefore never wait for another lane of the grid that may not have started: on
// the GPU too, where only some blocks are resident. (Waiting for the NIC, or for a lane that has certainly
// started, is fine.)
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/simt/group.hpp>
#include <gnstor/simt/time.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

namespace gnstor::simt {

enum class LanesKind : std::uint8_t { kCpu, kGpu };

/// The kind of lanes that runs the calling code.
GN_HD
constexpr LanesKind these_lanes() {
#if GN_DEVICE_PASS
    return LanesKind::kGpu;
#else
    return LanesKind::kCpu;
#endif
}

/// "cpu" or "gpu".
[[nodiscard]] Result<LanesKind> parse_lanes(std::string_view word);
[[nodiscard]] std::string_view lanes_name(LanesKind kind) noexcept;
/// Whether this build has GPU lanes and this machine a GPU that answers.
[[nodiscard]] bool gpu_available() noexcept;
/// Ok if lanes of this kind can run; the Error says what is missing and what to do.
[[nodiscard]] Result<void> check_lanes(LanesKind kind);

/// The stack that a lane may need for calls whose stack use the compiler cannot compute: callbacks through
/// pointers, and callbacks that send the next request.
inline constexpr std::size_t kLaneStackBytes = 4096;
/// Gives lanes of kernels started from now on a stack of at least `bytes`. GPU lanes: raises
/// cudaLimitStackSize of the GPU that the calling thread uses (1 KiB by default), never lowers it; the driver
/// reserves that much GPU memory for each lane that can be resident (1.1 GB on an H200). With a smaller stack
/// such calls silently overwrite each other's variables. CPU lanes: nothing to do. Host thread.
[[nodiscard]] Result<void> ensure_lane_stack(LanesKind kind, std::size_t bytes = kLaneStackBytes);

struct LaunchOptions {
    std::uint32_t cpu_workers = 0;                  ///< CPU lanes: threads; 0: as many as the machine has
    std::uint32_t shared_bytes = 0;                 ///< GPU lanes: dynamic shared memory of a block
    std::uint64_t timeout_ns = 600'000'000'000ull;  ///< launch(): how long to wait for the kernel's end
};

namespace detail {

/// A grid under way. One host thread uses it; its destructor waits for the grid's end.
class GridRun {
  public:
    virtual ~GridRun() = default;
    virtual Result<void> wait(Deadline deadline) = 0;
    [[nodiscard]] virtual bool done() = 0;
};

struct GridShape {
    std::uint32_t grid_blocks;
    std::uint32_t block_threads;
};
/// Calls the kernel at `kernel` for one lane.
using LaneCall = void (*)(const void* kernel, GridShape shape, std::uint32_t block, std::uint32_t thread);

Result<std::unique_ptr<GridRun>> start_on_cpu(GridShape shape, const void* kernel, std::size_t kernel_bytes,
                                              LaneCall call, const LaunchOptions& options);
/// `entry`: a __global__ function that takes the kernel by value; `kernel` is copied before this returns.
Result<std::unique_ptr<GridRun>> start_on_gpu(GridShape shape, const void* entry, void* kernel,
                                              const LaunchOptions& options);
Error not_compiled_for_gpu();

}  // namespace detail

/// A kernel under way. Movable, one host thread; destruction waits for the kernel's end (what it works on
/// belongs to the caller).
class Launch {
  public:
    explicit Launch(std::unique_ptr<detail::GridRun> run) : run_(std::move(run)) {}
    /// Waits for the end of the kernel. kTimedOut: it still runs, wait again. Other errors are the kernel's
    /// own.
    Result<void> wait(Deadline deadline) { return run_->wait(deadline); }
    [[nodiscard]] bool done() { return run_->done(); }

  private:
    std::unique_ptr<detail::GridRun> run_;
};

#if defined(__CUDACC__)
inline namespace gpu_lanes {
#else
inline namespace cpu_lanes {
#endif

namespace detail_launch {
template <class Kernel>
void call_lane(const void* kernel, detail::GridShape shape, std::uint32_t block, std::uint32_t thread) {
    Lane lane;
    lane.thread = thread;
    lane.block = block;
    lane.block_threads = shape.block_threads;
    lane.grid_blocks = shape.grid_blocks;
    (*static_cast<const Kernel*>(kernel))(lane);
}

#if defined(__CUDACC__)
template <class Kernel>
__global__ void kernel_entry(Kernel kernel) {
#if GN_DEVICE_PASS
    Lane lane;
    lane.index_in_warp = threadIdx.x % kWarpLanes;
    lane.thread = threadIdx.x;
    lane.block = blockIdx.x;
    lane.block_threads = blockDim.x;
    lane.grid_blocks = gridDim.x;
    kernel(lane);
#else
    (void)kernel;
#endif
}
#endif
}  // namespace detail_launch

/// Starts `kernel` on grid_blocks x block_threads lanes and returns while it runs.
template <class Kernel>
[[nodiscard]] Result<Launch> launch_async(LanesKind kind, std::uint32_t grid_blocks,
                                          std::uint32_t block_threads, Kernel kernel,
                                          LaunchOptions options = {}) {
    static_assert(std::is_trivially_copyable_v<Kernel>,
                  "a kernel is copied to the GPU as raw bytes: make it trivially copyable");
    static_assert(sizeof(Kernel) <= 4000,
                  "kernel parameters are limited to 4 KiB: keep large state in memory");
    const detail::GridShape shape{grid_blocks, block_threads};
    if (kind == LanesKind::kCpu) {
        GN_ASSIGN(auto run, detail::start_on_cpu(shape, &kernel, sizeof(Kernel),
                                                 &detail_launch::call_lane<Kernel>, options));
        return Launch(std::move(run));
    }
#if defined(__CUDACC__)
    const void* entry = reinterpret_cast<const void*>(&detail_launch::kernel_entry<Kernel>);
    GN_ASSIGN(auto run, detail::start_on_gpu(shape, entry, &kernel, options));
    return Launch(std::move(run));
#else
    return detail::not_compiled_for_gpu();
#endif
}

/// The same, and waits for the end.
template <class Kernel>
[[nodiscard]] Result<void> launch(LanesKind kind, std::uint32_t grid_blocks, std::uint32_t block_threads,
                                  Kernel kernel, LaunchOptions options = {}) {
    GN_ASSIGN(Launch started, launch_async(kind, grid_blocks, block_threads, kernel, options));
    return started.wait(Deadline::in_ns(options.timeout_ns));
}

}  // namespace gpu_lanes or cpu_lanes
}  // namespace gnstor::simt
