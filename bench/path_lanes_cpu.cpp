// path_lanes_cpu.cpp: `bench path` on CPU lanes: a warp is one lane, and a thread.
#include "path_lanes.inl"

#include <thread>

namespace gnstor::bench {
namespace {

class CpuPathLanes final : public PathLanesBase {
  public:
    CpuPathLanes() : PathLanesBase(simt::LanesKind::kCpu, 1, 1) {}

    [[nodiscard]] std::string describe(const LaneShape& shape) const override {
        return fmt::format("CPU lanes: {} thread{}, warps of one lane, {} operations in flight each",
                           shape.warps, shape.warps == 1 ? "" : "s", shape.depth);
    }
    [[nodiscard]] std::string gpu_name() const override { return ""; }
    [[nodiscard]] LaneShape default_shape(std::uint32_t engine_threads) const override {
        const std::uint32_t cores = std::max(1u, std::thread::hardware_concurrency());
        const std::uint32_t warps = cores > engine_threads ? cores - engine_threads : 1;
        return LaneShape{warps, std::min(32u, warps), 16};
    }
    [[nodiscard]] std::uint32_t depth_max() const override { return kCpuDepthMax; }
    [[nodiscard]] std::uint32_t lanes_a_warp(std::uint32_t) const override { return 1; }
};

}  // namespace

std::unique_ptr<PathLanes> make_cpu_path_lanes() {
    return std::make_unique<CpuPathLanes>();
}

#if !defined(GN_WITH_CUDA)
std::unique_ptr<PathLanes> make_gpu_path_lanes() {
    return nullptr;
}
#endif

}  // namespace gnstor::bench
