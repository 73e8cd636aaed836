// lanes_gpu.cu: the demo's jobs on GPU lanes.
#include "lanes.inl"

#include <gnstor/simt/pinned_memory.hpp>

#include <cuda_runtime.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace gnstor::demo {
namespace {

constexpr std::uint32_t kBatchBlocks = 4096;  // 16 MiB a pread and a copy
constexpr std::size_t kBatchBytes = std::size_t{kBatchBlocks} * nvme::kBlockBytes;

Result<void> check(cudaError_t status, const char* what) {
    if (status == cudaSuccess) return {};
    return error(Errc::kIo, "{} failed: {}", what, cudaGetErrorString(status));
}

/// Scans one batch that lies in GPU memory.
struct DeviceScanJob {
    const std::uint8_t* data;
    std::uint64_t base;       ///< offset of data[0] in the input
    std::uint64_t available;  ///< bytes of input from there, at most a batch and a pattern
    std::uint32_t blocks;
    Pattern pattern;
    Totals* totals;
    std::uint64_t* match_offsets;
    std::uint32_t* crcs;

    GN_HD
    void operator()(simt::Lane lane) const {
        const auto group = simt::warp(lane);
        const Matches matches{match_offsets, kMatchesMax, &totals->found};
        const auto warps = static_cast<std::uint32_t>(lane.grid_size() / simt::kWarpLanes);
        for (auto b = static_cast<std::uint32_t>(lane.warp_rank()); b < blocks; b += warps) {
            const std::uint64_t at = std::uint64_t{b} * nvme::kBlockBytes;
            const std::uint64_t left = available - at;
            const auto starts =
                static_cast<std::uint32_t>(left < nvme::kBlockBytes ? left : nvme::kBlockBytes);
            scan_bytes(
                group, data + at, starts,
                static_cast<std::uint32_t>(left < 2 * nvme::kBlockBytes ? left : 2 * nvme::kBlockBytes),
                pattern, base + at, matches);
            const std::uint32_t crc = block_crc(group, data + at);
            if (group.is_leader()) crcs[base / nvme::kBlockBytes + b] = crc;
        }
    }
};

/// pread, cudaMemcpyAsync and kernel, two batches deep.
class FilePipeline {
  public:
    ~FilePipeline() {
        for (int i = 0; i < 2; ++i) {
            if (streams_[i] != nullptr) cudaStreamDestroy(streams_[i]);
            cudaFree(device_[i]);
        }
        if (file_ >= 0) close(file_);
    }
    Result<void> open_file(const std::filesystem::path& path) {
        file_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
        if (file_ < 0) return error(Errc::kIo, "cannot open {}: {}", path.string(), std::strerror(errno));
        for (int i = 0; i < 2; ++i) {
            GN_ASSIGN(host_[i],
                      simt::PinnedMemory::map(kBatchBytes + nvme::kBlockBytes, simt::LanesKind::kGpu));
            GN_TRY(check(cudaMalloc(&device_[i], kBatchBytes + nvme::kBlockBytes), "cudaMalloc"));
            GN_TRY(check(cudaStreamCreateWithFlags(&streams_[i], cudaStreamNonBlocking), "cudaStreamCreate"));
        }
        return {};
    }
    Result<std::uint64_t> run(DeviceScanJob job, std::uint64_t input_bytes, std::uint32_t* latency_ns,
                              Shape shape) {
        std::uint64_t copies = 0;
        for (std::uint64_t at = 0; at < input_bytes; at += kBatchBytes, ++copies) {
            const int i = static_cast<int>(copies % 2);
            GN_TRY(check(cudaStreamSynchronize(streams_[i]), "waiting for a batch"));
            const std::uint64_t begin = simt::now_ns();
            const ssize_t got =
                pread(file_, host_[i].data(), kBatchBytes + kPatternBytesMax, static_cast<off_t>(at));
            if (got <= 0) return error(Errc::kIo, "pread at offset {} failed: {}", at, std::strerror(errno));
            std::memset(host_[i].data() + got, 0,
                        kBatchBytes + nvme::kBlockBytes - static_cast<std::size_t>(got));
            GN_TRY(check(cudaMemcpyAsync(device_[i], host_[i].data(), kBatchBytes + nvme::kBlockBytes,
                                         cudaMemcpyHostToDevice, streams_[i]),
                         "cudaMemcpyAsync"));
            job.data = static_cast<const std::uint8_t*>(device_[i]);
            job.base = at;
            job.available = static_cast<std::uint64_t>(got);
            const std::uint64_t in_batch = std::min<std::uint64_t>(job.available, kBatchBytes);
            job.blocks = static_cast<std::uint32_t>((in_batch + nvme::kBlockBytes - 1) / nvme::kBlockBytes);
            simt::detail_launch::kernel_entry<<<shape.blocks, shape.threads, 0, streams_[i]>>>(job);
            GN_TRY(check(cudaGetLastError(), "launching the scan"));
            latency_ns[copies] = static_cast<std::uint32_t>(simt::now_ns() - begin);
        }
        for (cudaStream_t stream : streams_) GN_TRY(check(cudaStreamSynchronize(stream), "the scan"));
        return copies;
    }

  private:
    int file_ = -1;
    simt::PinnedMemory host_[2];
    void* device_[2] = {};
    cudaStream_t streams_[2] = {};
};

class GpuLanes final : public LanesBase {
  public:
    GpuLanes() : LanesBase(simt::LanesKind::kGpu, Shape{64, GrepJob::kWarpsPerBlock * simt::kWarpLanes, 1}) {}

    [[nodiscard]] std::string describe() const override {
        cudaDeviceProp properties{};
        const char* name = cudaGetDeviceProperties(&properties, 0) == cudaSuccess ? properties.name
                                                                                  : "a GPU of unknown name";
        return fmt::format("GPU lanes: {}, {} blocks of {} lanes, warps of 32", name, shape_.blocks,
                           shape_.threads);
    }
    [[nodiscard]] std::uint32_t channels() const override { return 32; }

    Result<GrepOutcome> grep_file(const std::filesystem::path& file, const GrepRequest& request) override {
        const auto blocks =
            static_cast<std::uint32_t>((request.input_bytes + nvme::kBlockBytes - 1) / nvme::kBlockBytes);
        const std::uint32_t batches = pieces_of(blocks, kBatchBlocks);
        GN_ASSIGN(const GrepMemory memory, GrepMemory::allocate(blocks, batches, kind_));
        FilePipeline pipeline;
        GN_TRY(pipeline.open_file(file));
        DeviceScanJob job{};
        job.pattern = request.pattern;
        job.totals = memory.totals.lane_as<Totals>();
        job.match_offsets = memory.matches.lane_as<std::uint64_t>();
        job.crcs = memory.crcs.lane_as<std::uint32_t>();
        std::vector<std::uint32_t> latency(batches);
        const auto begin = std::chrono::steady_clock::now();
        GN_ASSIGN(const std::uint64_t copies, pipeline.run(job, request.input_bytes, latency.data(), shape_));
        GN_ASSIGN(GrepOutcome out, memory.outcome(seconds_since(begin), blocks, batches));
        out.latency_ns = std::move(latency);
        out.totals.commands = copies;
        out.totals.bytes = request.input_bytes;
        return out;
    }
};

}  // namespace

std::unique_ptr<Lanes> make_gpu_lanes() {
    return std::make_unique<GpuLanes>();
}

}  // namespace gnstor::demo
