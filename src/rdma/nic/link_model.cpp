// link_model.cpp: see link_model.hpp.
#include "rdma/nic/link_model.hpp"

#include <algorithm>
#include <cmath>

namespace gnstor::rdma {

namespace {

constexpr double kLeastBytesPerSecond = 1e6, kMostBytesPerSecond = 1e13;
constexpr std::uint64_t kLongestNs = 1'000'000'000;

Result<void> check_direction(const char* name, const LinkDirection& d) {
    if (!(d.bytes_per_second >= kLeastBytesPerSecond) || d.bytes_per_second > kMostBytesPerSecond)
        return error(Errc::kInvalidArgument,
                     "link {}: a bandwidth of {} bytes a second is out of range; give {} to {}", name,
                     d.bytes_per_second, kLeastBytesPerSecond, kMostBytesPerSecond);
    if (d.latency_ns > kLongestNs)
        return error(Errc::kInvalidArgument, "link {}: a latency of {} ns is out of range; give at most {}",
                     name, d.latency_ns, kLongestNs);
    return {};
}

}  // namespace

Result<void> check(const LinkTiming& timing) {
    if (timing.none()) return {};
    GN_TRY(check_direction("to_node", timing.to_node));
    return check_direction("from_node", timing.from_node);
}

void LinkModel::Direction::begin(const LinkDirection& timing, std::uint64_t begin_ns) {
    byte_cost_ = 1e9 * (1u << kFraction) / timing.bytes_per_second;
    latency_ns_ = timing.latency_ns;
    begin_ns_ = begin_ns;
}

std::uint64_t LinkModel::Direction::send(std::uint64_t now_ns, std::uint64_t bytes) {
    const auto cost = static_cast<std::uint64_t>(std::llround(static_cast<double>(bytes) * byte_cost_));
    const std::uint64_t now = (now_ns - begin_ns_) << kFraction;
    // Relaxed: the word orders no other memory.
    std::uint64_t before = busy_until_.load(std::memory_order_relaxed);
    std::uint64_t after;
    do after = std::max(before, now) + cost;
    while (!busy_until_.compare_exchange_weak(before, after, std::memory_order_relaxed));
    return begin_ns_ + ((after + (1u << kFraction) - 1) >> kFraction) + latency_ns_;
}

LinkModel::LinkModel(const LinkTiming& timing, std::uint64_t begin_ns) {
    to_node_.begin(timing.to_node, begin_ns);
    from_node_.begin(timing.from_node, begin_ns);
}

std::uint64_t LinkModel::to_node_with_fetch(std::uint64_t now_ns, std::uint64_t bytes,
                                            std::uint64_t fetched) {
    const std::uint64_t arrival = to_node_.send(now_ns, bytes + fetched);
    return fetched == 0 ? arrival : arrival + from_node_.latency_ns() + to_node_.latency_ns();
}

}  // namespace gnstor::rdma
