// load_lanes_cpu.cpp: the harness' kernels on CPU lanes: a warp is one lane, and a thread. A copy to "the
// lanes' memory" is a memcpy to another buffer here.
#include "bench/initiators/load_lanes.inl"

#include <algorithm>
#include <cstring>
#include <thread>

namespace gnstor::bench {
namespace {

/// Copies at once.
class CpuCopier final : public Copier {
  public:
    void begin(std::uint32_t tag, void* to, const void* from, std::size_t bytes) override {
        std::memcpy(to, from, bytes);
        done_.push_back(tag);
    }
    void seal() override {}
    std::uint32_t poll(std::span<std::uint32_t> tags) override {
        const auto n = static_cast<std::uint32_t>(std::min(tags.size(), done_.size()));
        std::copy_n(done_.begin(), n, tags.begin());
        done_.erase(done_.begin(), done_.begin() + n);
        return n;
    }
    [[nodiscard]] Result<void> error() const override { return {}; }

  private:
    std::vector<std::uint32_t> done_;
};

class CpuLoadLanes final : public LoadLanesBase {
  public:
    CpuLoadLanes() : LoadLanesBase(simt::LanesKind::kCpu, 1, 1) {}
    [[nodiscard]] std::string gpu_name() const override { return ""; }
    [[nodiscard]] std::uint32_t depth_max() const override { return kFlightsMax; }
    [[nodiscard]] std::uint32_t mailboxes_a_stream() const override { return 1; }
    Result<std::unique_ptr<Copier>> make_copier() override {
        return std::unique_ptr<Copier>(std::make_unique<CpuCopier>());
    }

  protected:
    [[nodiscard]] std::uint32_t consumer_warps_max() const override {
        return std::max(1u, std::thread::hardware_concurrency() / 2);
    }
};

}  // namespace

std::unique_ptr<LoadLanes> make_cpu_load_lanes() {
    return std::make_unique<CpuLoadLanes>();
}

void add_result(Outcome& out, const LaneResult& r) {
    if (out.failures + out.wrong == 0 && r.failures + r.wrong != 0) {
        out.first_status = static_cast<nvme::Status>(r.first_status);
        out.first_offset = r.first_offset;
    }
    out.operations += r.operations;
    out.checked += r.checked;
    out.wrong += r.wrong;
    out.failures += r.failures;
    out.quota_used = out.quota_used || r.quota_used != 0;
}

std::uint32_t warps_for(const LoadLanes& lanes, std::uint32_t wanted, std::uint32_t depth) {
    for (std::uint32_t w = std::min(wanted, depth); w != 0; --w) {
        const std::uint32_t each = depth / w;
        if (depth % w == 0 && each <= lanes.depth_max() && each % lanes.askers(each) == 0) return w;
    }
    return 0;
}

#if !defined(GN_WITH_CUDA)
std::unique_ptr<LoadLanes> make_gpu_load_lanes() {
    return nullptr;
}
#endif

}  // namespace gnstor::bench
