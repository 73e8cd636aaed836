// lanes.inl: Lanes for one kind of lanes, included by lanes_cpu.cpp and lanes_gpu.cu. What differs is in
// Shape and grep_file.
#pragma once

#include "lanes.hpp"
#include "trace_job.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>

namespace gnstor::demo {
namespace {

/// The grid, and how much each warp asks for at once.
struct Shape {
    std::uint32_t blocks;
    std::uint32_t threads;
    std::uint32_t chunks_a_piece;
};

constexpr std::uint32_t kMatchesMax = 1u << 22;

template <class T>
Result<std::vector<T>> download(const simt::DeviceMemory& memory, std::size_t count) {
    std::vector<T> out(count);
    if (count != 0) GN_TRY(memory.download(0, out.data(), count * sizeof(T)));
    return out;
}

std::vector<std::uint32_t> shuffled(std::uint32_t count, std::uint64_t seed) {
    std::vector<std::uint32_t> order(count);
    std::iota(order.begin(), order.end(), 0u);
    SplitMix64 random(seed);
    for (std::uint32_t i = count; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    return order;
}

/// What a grep leaves behind in lane memory.
struct GrepMemory {
    simt::DeviceMemory totals, matches, crcs, latency;
    static Result<GrepMemory> allocate(std::uint32_t blocks, std::uint32_t pieces, simt::LanesKind kind) {
        GrepMemory m;
        GN_ASSIGN(m.totals, simt::DeviceMemory::allocate(sizeof(Totals), kind));
        GN_ASSIGN(m.matches,
                  simt::DeviceMemory::allocate(std::size_t{kMatchesMax} * sizeof(std::uint64_t), kind));
        GN_ASSIGN(m.crcs, simt::DeviceMemory::allocate(std::size_t{blocks} * sizeof(std::uint32_t), kind));
        GN_ASSIGN(m.latency, simt::DeviceMemory::allocate(std::size_t{pieces} * sizeof(std::uint32_t), kind));
        return Result<GrepMemory>(std::move(m));
    }
    Result<GrepOutcome> outcome(double seconds, std::uint32_t blocks, std::uint32_t pieces) const {
        GrepOutcome out;
        out.seconds = seconds;
        GN_TRY(totals.download(0, &out.totals, sizeof out.totals));
        if (out.totals.found > kMatchesMax)
            return error(
                Errc::kNoSpace,
                "the kernel found {} matches, more than the demo can keep ({}); choose a rarer --pattern",
                out.totals.found, kMatchesMax);
        GN_ASSIGN(out.matches, download<std::uint64_t>(matches, out.totals.found));
        std::sort(out.matches.begin(), out.matches.end());
        GN_ASSIGN(out.crcs, download<std::uint32_t>(crcs, blocks));
        GN_ASSIGN(out.latency_ns, download<std::uint32_t>(latency, pieces));
        return out;
    }
};

class LanesBase : public Lanes {
  public:
    LanesBase(simt::LanesKind kind, Shape shape) : kind_(kind), shape_(shape) {}

    Result<StoreOutcome> store(client::Client& client, const client::Volume& volume,
                               const client::Buffer& source, std::uint32_t first,
                               std::uint32_t blocks) override {
        StoreJob job{};
        job.volume = volume.ref();
        job.channels = client.channels();
        job.source = source.lane_data();
        job.first = first;
        job.blocks = blocks;
        job.piece_blocks = piece_blocks(job.volume);
        job.pieces = pieces_of(blocks, job.piece_blocks);
        GN_ASSIGN(simt::DeviceMemory totals, simt::DeviceMemory::allocate(sizeof(Totals), kind_));
        GN_ASSIGN(simt::DeviceMemory latency,
                  simt::DeviceMemory::allocate(job.pieces * sizeof(std::uint32_t), kind_));
        job.totals = totals.lane_as<Totals>();
        job.latency_ns = latency.lane_as<std::uint32_t>();
        const auto begin = std::chrono::steady_clock::now();
        GN_TRY(simt::launch(kind_, shape_.blocks, shape_.threads, job));
        StoreOutcome out;
        out.seconds = seconds_since(begin);
        GN_TRY(totals.download(0, &out.totals, sizeof out.totals));
        GN_ASSIGN(out.latency_ns, download<std::uint32_t>(latency, job.pieces));
        return out;
    }

    Result<GrepOutcome> grep(client::Client& client, const client::Volume& volume,
                             const GrepRequest& request) override {
        GrepJob job{};
        job.volume = volume.ref();
        job.channels = client.channels();
        job.pattern = request.pattern;
        job.input_bytes = request.input_bytes;
        job.blocks =
            static_cast<std::uint32_t>((request.input_bytes + nvme::kBlockBytes - 1) / nvme::kBlockBytes);
        job.piece_blocks = piece_blocks(job.volume);
        job.pieces = pieces_of(job.blocks, job.piece_blocks);
        const std::vector<std::uint32_t> order = shuffled(job.pieces, request.seed);
        GN_ASSIGN(simt::DeviceMemory order_memory,
                  simt::DeviceMemory::allocate(order.size() * sizeof(std::uint32_t), kind_));
        GN_TRY(order_memory.upload(0, order.data(), order.size() * sizeof(std::uint32_t)));
        GN_ASSIGN(const GrepMemory memory, GrepMemory::allocate(job.blocks, job.pieces, kind_));
        job.order = order_memory.lane_as<std::uint32_t>();
        job.totals = memory.totals.lane_as<Totals>();
        job.match_offsets = memory.matches.lane_as<std::uint64_t>();
        job.match_capacity = kMatchesMax;
        job.crcs = memory.crcs.lane_as<std::uint32_t>();
        job.latency_ns = memory.latency.lane_as<std::uint32_t>();
        const auto begin = std::chrono::steady_clock::now();
        GN_TRY(simt::launch(kind_, shape_.blocks, shape_.threads, job));
        return memory.outcome(seconds_since(begin), job.blocks, job.pieces);
    }

    Result<ReadTrace> trace(client::Client& client, const client::Volume& volume,
                            nvme::BlockAddress block) override {
        GN_ASSIGN(simt::DeviceMemory memory, simt::DeviceMemory::allocate(sizeof(ReadTrace), kind_));
        GN_ASSIGN(simt::DeviceMemory status_memory,
                  simt::DeviceMemory::allocate(sizeof(std::uint32_t), kind_));
        const TraceJob job{volume.ref(), client.channels(), block, memory.lane_as<ReadTrace>(),
                           status_memory.lane_as<std::uint32_t>()};
        GN_TRY(simt::launch(kind_, 1, 1, job));
        std::uint32_t status = 0;
        GN_TRY(status_memory.download(0, &status, sizeof status));
        if (status != 0)
            return error(Errc::kIo, "the read that the demo dissects failed: {}",
                         nvme::status_name(static_cast<nvme::Status>(status)));
        ReadTrace trace;
        GN_TRY(memory.download(0, &trace, sizeof trace));
        return trace;
    }

  protected:
    [[nodiscard]] std::uint32_t piece_blocks(const VolumeRef& volume) const {
        return shape_.chunks_a_piece << volume.geometry.chunk_shift;
    }
    static std::uint32_t pieces_of(std::uint32_t blocks, std::uint32_t piece_blocks) {
        return (blocks + piece_blocks - 1) / piece_blocks;
    }

    const simt::LanesKind kind_;
    const Shape shape_;
};

}  // namespace
}  // namespace gnstor::demo
