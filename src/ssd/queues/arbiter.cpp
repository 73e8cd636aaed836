// arbiter.cpp: adding and removing queues, credits, and the encoding of the Arbitration feature.
#include "ssd/queues/arbiter.hpp"

#include <bit>

namespace gnstor::ssd {

namespace {
constexpr std::uint32_t kNoBurstLimit = 7;
constexpr std::uint32_t kLargestBurst = 65536;  // more than any queue holds
}  // namespace

std::uint32_t ArbitrationWeights::encode() const {
    const std::uint32_t ab =
        burst >= 128 ? kNoBurstLimit : static_cast<std::uint32_t>(std::bit_width(burst)) - 1;
    return ((high - 1) << 24) | ((medium - 1) << 16) | ((low - 1) << 8) | ab;
}

ArbitrationWeights ArbitrationWeights::decode(std::uint32_t cdw11) {
    const std::uint32_t ab = cdw11 & 7u;
    return {ab == kNoBurstLimit ? kLargestBurst : 1u << ab, (cdw11 >> 24) + 1, ((cdw11 >> 16) & 0xFFu) + 1,
            ((cdw11 >> 8) & 0xFFu) + 1};
}

void Arbiter::add(std::uint32_t queue, Priority priority) {
    Class& cls = priority == Priority::kUrgent ? urgent_ : weighted_[static_cast<std::size_t>(priority) - 1];
    cls.queues.push_back(queue);
}

void Arbiter::remove(std::uint32_t queue) {
    const auto drop = [queue](Class& cls) {
        if (std::erase(cls.queues, queue) == 0) return;
        cls.at = 0;
        cls.of_burst = 0;
    };
    drop(urgent_);
    for (Class& cls : weighted_) drop(cls);
}

void Arbiter::refill() {
    const std::uint32_t weight[kWeighted] = {weights_.high, weights_.medium, weights_.low};
    // With an unlimited burst one round would never end: credits count bursts of at most 16.
    const std::uint32_t unit = std::min(weights_.burst, 16u);
    for (std::uint32_t i = 0; i < kWeighted; ++i) credit_[i] = weight[i] * unit;
}

}  // namespace gnstor::ssd
