// model_figures.cpp: see model_figures.hpp. Messages as nvmf sends them: a capsule of 64 bytes, with up to 4
// KiB of payload in it; larger payload is fetched; an answer of 16 bytes behind the data of a read.
#include "model_figures.hpp"

#include <algorithm>

namespace gnstor::bench {

namespace {
constexpr double kCapsuleBytes = 64, kAnswerBytes = 16;
constexpr std::uint32_t kInCapsule = 4096;
constexpr std::uint32_t kLargestCommand = 1u << 20;
}  // namespace

double ModelFigures::limit() const {
    if (drives_per_second == 0 || network_per_second == 0)
        return std::max(drives_per_second, network_per_second);
    return std::min(drives_per_second, network_per_second);
}

ModelFigures figures_of(const embedded::Profile& profile, bool write, std::uint32_t bytes, std::uint32_t ssds,
                        std::uint32_t replicas) {
    ModelFigures f;
    const double copies = write ? replicas : 1;
    if (!profile.drive.none()) {
        const ssd::TimingModel drive(profile.drive, kLargestCommand);
        f.drives_per_second = 1e9 / drive.cost_ns(write, bytes) * ssds / copies;
        f.latency_ns += drive.latency_ns(write, bytes);
    }
    if (!profile.network.none()) {
        const rdma::LinkDirection &to = profile.network.to_node, &from = profile.network.from_node;
        const double to_bytes = copies * (kCapsuleBytes + (write ? bytes : 0));
        const double from_bytes = copies * kAnswerBytes + (write ? 0 : bytes);
        f.network_per_second = std::min(to.bytes_per_second / to_bytes, from.bytes_per_second / from_bytes);
        f.latency_ns += static_cast<double>(to.latency_ns + from.latency_ns) +
                        1e9 * to_bytes / to.bytes_per_second +
                        1e9 * (kAnswerBytes + (write ? 0 : bytes)) / from.bytes_per_second;
        if (write && bytes > kInCapsule) f.latency_ns += static_cast<double>(to.latency_ns + from.latency_ns);
    }
    return f;
}

}  // namespace gnstor::bench
