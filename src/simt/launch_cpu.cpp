// launch_cpu.cpp: a grid on CPU lanes, and functions for both kinds of lanes.
//
// Owns: a copy of the kernel, the worker threads. Workers draw lane numbers from one counter; the last one to
// finish announces the end under the mutex. A lane that throws ends the grid: no further lanes start, and
// wait() says why.
#include <gnstor/base/log.hpp>
#include <gnstor/simt/launch.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace gnstor::simt {

Result<LanesKind> parse_lanes(std::string_view word) {
    if (word == "cpu") return LanesKind::kCpu;
    if (word == "gpu") return LanesKind::kGpu;
    return error(Errc::kInvalidArgument, "lanes '{}' are unknown; use cpu or gpu", word.substr(0, 32));
}

std::string_view lanes_name(LanesKind kind) noexcept {
    return kind == LanesKind::kGpu ? "gpu" : "cpu";
}

namespace detail {
namespace {

constexpr std::uint32_t kWorkersMax = 1024;
constexpr auto kComplainAfter = std::chrono::seconds(30);

class CpuGrid final : public GridRun {
  public:
    CpuGrid(GridShape shape, const void* kernel, std::size_t kernel_bytes, LaneCall call)
        : shape_(shape),
          call_(call),
          lanes_(std::uint64_t{shape.grid_blocks} * shape.block_threads),
          kernel_((kernel_bytes + sizeof(Unit) - 1) / sizeof(Unit)) {
        std::memcpy(kernel_.data(), kernel, kernel_bytes);
    }

    Result<void> start_workers(std::uint32_t workers) {
        const std::lock_guard lock(mutex_);
        for (std::uint32_t i = 0; i < workers; ++i) {
            try {
                threads_.emplace_back([this] { work(); });
                ++running_;
            } catch (const std::system_error& e) {
                if (i > 0) break;  // fewer workers are enough, only slower
                return error(Errc::kNoSpace, "cannot start a worker thread for CPU lanes: {}", e.what());
            }
        }
        return {};
    }

    ~CpuGrid() override {
        std::unique_lock lock(mutex_);
        while (!ended_.wait_for(lock, kComplainAfter, [&] { return running_ == 0; }))
            log_warn("still waiting for {} workers of a grid of {} CPU lanes to end", running_, lanes_);
        lock.unlock();
        for (auto& thread : threads_) thread.join();
    }

    Result<void> wait(Deadline deadline) override {
        std::unique_lock lock(mutex_);
        const std::uint64_t now = now_ns();
        const std::uint64_t left = deadline.at_ns > now ? deadline.at_ns - now : 0;
        constexpr std::uint64_t kLongest = 365ull * 86'400 * 1'000'000'000;
        const auto patience = std::chrono::nanoseconds(std::min(left, kLongest));
        if (!ended_.wait_for(lock, patience, [&] { return running_ == 0; }))
            return error(Errc::kTimedOut,
                         "a grid of {} CPU lanes was not done by its deadline; it still runs", lanes_);
        if (!failure_.empty())
            return error(Errc::kInternal, "a CPU lane threw: {}; a kernel must report errors as status codes",
                         failure_);
        return {};
    }

    bool done() override {
        const std::lock_guard lock(mutex_);
        return running_ == 0;
    }

  private:
    struct alignas(64) Unit {
        std::byte bytes[64];
    };

    void work() noexcept {
        std::string failure;
        try {
            // Relaxed: the counter only distributes lane numbers; lanes order the memory that they share.
            for (std::uint64_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < lanes_;)
                call_(kernel_.data(), shape_, static_cast<std::uint32_t>(i / shape_.block_threads),
                      static_cast<std::uint32_t>(i % shape_.block_threads));
        } catch (const std::exception& e) {
            failure = e.what();
        } catch (...) {
            failure = "an object that is not a std::exception";
        }
        const std::lock_guard lock(mutex_);
        if (!failure.empty()) {
            next_.store(lanes_, std::memory_order_relaxed);
            if (failure_.empty()) failure_ = failure;
        }
        if (--running_ == 0) ended_.notify_all();
    }

    const GridShape shape_;
    const LaneCall call_;
    const std::uint64_t lanes_;
    std::vector<Unit> kernel_;
    std::atomic<std::uint64_t> next_{0};
    std::mutex mutex_;
    std::condition_variable ended_;
    std::uint32_t running_ = 0;  // guarded by mutex_
    std::string failure_;        // guarded by mutex_
    std::vector<std::thread> threads_;
};

}  // namespace

Result<std::unique_ptr<GridRun>> start_on_cpu(GridShape shape, const void* kernel, std::size_t kernel_bytes,
                                              LaneCall call, const LaunchOptions& options) {
    if (shape.grid_blocks == 0 || shape.block_threads == 0 || shape.block_threads > 1024)
        return error(Errc::kInvalidArgument,
                     "cannot launch a grid of {} blocks of {} lanes: use at least 1 block of 1 to 1024 lanes",
                     shape.grid_blocks, shape.block_threads);
    if (options.cpu_workers > kWorkersMax)
        return error(Errc::kInvalidArgument, "{} worker threads for CPU lanes are too many; use at most {}",
                     options.cpu_workers, kWorkersMax);
    const std::uint64_t lanes = std::uint64_t{shape.grid_blocks} * shape.block_threads;
    std::uint32_t workers =
        options.cpu_workers != 0 ? options.cpu_workers : std::thread::hardware_concurrency();
    workers = static_cast<std::uint32_t>(std::min<std::uint64_t>(std::max(workers, 1u), lanes));
    auto grid = std::make_unique<CpuGrid>(shape, kernel, kernel_bytes, call);
    GN_TRY(grid->start_workers(workers));
    return std::unique_ptr<GridRun>(std::move(grid));
}

Error not_compiled_for_gpu() {
    if (auto missing = check_lanes(LanesKind::kGpu); !missing.ok()) return std::move(missing).error();
    return error(
        Errc::kUnsupported,
        "GPU lanes: this kernel was compiled by the host compiler alone; put its launch into a .cu file, or "
        "use --lanes cpu");
}

}  // namespace detail
}  // namespace gnstor::simt
