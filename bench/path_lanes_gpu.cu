// path_lanes_gpu.cu: `bench path` on GPU lanes: warps of 32, four a block.
#include "path_lanes.inl"

#include <cuda_runtime.h>

#include <algorithm>

namespace gnstor::bench {
namespace {

class GpuPathLanes final : public PathLanesBase {
  public:
    GpuPathLanes()
        : PathLanesBase(simt::LanesKind::kGpu, simt::kWarpLanes, kGpuBlockThreads / simt::kWarpLanes) {}

    [[nodiscard]] std::string describe(const LaneShape& shape) const override {
        return fmt::format("GPU lanes: {}, {} warps of 32 lanes, {} operations in flight per lane",
                           gpu_name(), shape.warps, shape.depth);
    }
    [[nodiscard]] std::string gpu_name() const override {
        cudaDeviceProp properties{};
        return cudaGetDeviceProperties(&properties, 0) == cudaSuccess ? properties.name
                                                                      : "a GPU of unknown name";
    }
    [[nodiscard]] LaneShape default_shape(std::uint32_t) const override { return LaneShape{256, 32, 1}; }
    [[nodiscard]] std::uint32_t depth_max() const override { return kGpuDepthMax; }
    /// Large operations: fewer lanes ask, so that what is in flight stays within reach of the GPU's address
    /// translation (128 KiB a warp); all of them copy and check.
    [[nodiscard]] std::uint32_t lanes_a_warp(std::uint32_t bytes) const override {
        constexpr std::uint32_t kBytesAWarp = simt::kWarpLanes * nvme::kBlockBytes;
        return std::clamp(kBytesAWarp / bytes, 1u, simt::kWarpLanes);
    }
};

}  // namespace

std::unique_ptr<PathLanes> make_gpu_path_lanes() {
    return std::make_unique<GpuPathLanes>();
}

}  // namespace gnstor::bench
