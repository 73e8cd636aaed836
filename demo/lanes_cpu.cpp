// lanes_cpu.cpp: the demo's jobs on CPU lanes.
#include "lanes.inl"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

namespace gnstor::demo {
namespace {

constexpr std::uint32_t kFilePieceBlocks = 64;

/// pread into the lane's own buffer, then the same scan. Host code: CPU lanes may call the system.
struct FileGrepJob {
    int file;
    GrepJob grep;  ///< pattern, sizes and where results go; no volume
    std::byte* buffers;
    std::uint32_t lanes;

    void operator()(simt::Lane lane) const {
        const auto group = simt::warp(lane);
        std::byte* const buffer = buffers + lane.grid_rank() * (kFilePieceBlocks + 1) * nvme::kBlockBytes;
        const Matches matches{grep.match_offsets, grep.match_capacity, &grep.totals->found};
        for (std::uint32_t piece; (piece = take_piece(group, grep.totals)) < grep.pieces;) {
            const std::uint64_t at = std::uint64_t{piece} * kFilePieceBlocks * nvme::kBlockBytes;
            const std::uint64_t begin = simt::now_ns();
            const ssize_t got = pread(file, buffer, kFilePieceBlocks * nvme::kBlockBytes + kPatternBytesMax,
                                      static_cast<off_t>(at));
            grep.latency_ns[piece] = static_cast<std::uint32_t>(simt::now_ns() - begin);
            if (got < 0) {
                note_failure(group, grep.totals, nvme::Status::kInternalError, at / nvme::kBlockBytes);
                continue;
            }
            const auto bytes = static_cast<std::uint64_t>(got);
            std::memset(buffer + bytes, 0, (kFilePieceBlocks + 1) * std::size_t{nvme::kBlockBytes} - bytes);
            const auto* data = reinterpret_cast<const std::uint8_t*>(buffer);
            const auto starts = static_cast<std::uint32_t>(
                std::min<std::uint64_t>(bytes, kFilePieceBlocks * nvme::kBlockBytes));
            scan_bytes(group, data, starts, static_cast<std::uint32_t>(bytes), grep.pattern, at, matches);
            for (std::uint32_t b = 0; b * nvme::kBlockBytes < starts; ++b)
                grep.crcs[piece * kFilePieceBlocks + b] = block_crc(group, data + b * nvme::kBlockBytes);
            note_commands(group, grep.totals, 1, starts);
        }
    }
};

std::uint32_t workers() {
    return std::max(1u, std::thread::hardware_concurrency());
}

class CpuLanes final : public LanesBase {
  public:
    CpuLanes() : LanesBase(simt::LanesKind::kCpu, Shape{workers(), 1, 2}) {}

    [[nodiscard]] std::string describe() const override {
        return fmt::format("CPU lanes: {} threads, warps of one lane", workers());
    }
    [[nodiscard]] std::uint32_t channels() const override { return std::min(32u, workers()); }

    Result<GrepOutcome> grep_file(const std::filesystem::path& file, const GrepRequest& request) override {
        FileGrepJob job{};
        job.file = open(file.c_str(), O_RDONLY | O_CLOEXEC);
        if (job.file < 0) return error(Errc::kIo, "cannot open {}: {}", file.string(), std::strerror(errno));
        auto outcome = grep_open_file(job, request);
        close(job.file);
        return outcome;
    }

  private:
    Result<GrepOutcome> grep_open_file(FileGrepJob& job, const GrepRequest& request) {
        const auto blocks =
            static_cast<std::uint32_t>((request.input_bytes + nvme::kBlockBytes - 1) / nvme::kBlockBytes);
        job.grep.pattern = request.pattern;
        job.grep.pieces = pieces_of(blocks, kFilePieceBlocks);
        job.lanes = shape_.blocks * shape_.threads;
        GN_ASSIGN(const GrepMemory memory, GrepMemory::allocate(blocks, job.grep.pieces, kind_));
        GN_ASSIGN(const simt::DeviceMemory buffers,
                  simt::DeviceMemory::allocate(
                      std::size_t{job.lanes} * (kFilePieceBlocks + 1) * nvme::kBlockBytes, kind_));
        job.buffers = buffers.lane_as<std::byte>();
        job.grep.totals = memory.totals.lane_as<Totals>();
        job.grep.match_offsets = memory.matches.lane_as<std::uint64_t>();
        job.grep.match_capacity = kMatchesMax;
        job.grep.crcs = memory.crcs.lane_as<std::uint32_t>();
        job.grep.latency_ns = memory.latency.lane_as<std::uint32_t>();
        const auto begin = std::chrono::steady_clock::now();
        GN_TRY(simt::launch(kind_, shape_.blocks, shape_.threads, job));
        return memory.outcome(seconds_since(begin), blocks, job.grep.pieces);
    }
};

}  // namespace

std::unique_ptr<Lanes> make_cpu_lanes() {
    return std::make_unique<CpuLanes>();
}

#if !defined(GN_WITH_CUDA)
std::unique_ptr<Lanes> make_gpu_lanes() {
    return nullptr;
}
#endif

}  // namespace gnstor::demo
