// pacer.cpp: see pacer.hpp.
#include "rdma/roce/pacer.hpp"

#include <algorithm>
#include <utility>

namespace gnstor::rdma::roce {
namespace {
constexpr TimeNs kFillMaxNs = 100'000'000;  // fills any burst
constexpr std::uint64_t kBurstsASecond = 4'000;
constexpr std::int64_t kInARow = 16 * 1024;

std::uint64_t a_second(std::uint64_t bytes, TimeNs time) noexcept {
    return static_cast<std::uint64_t>(static_cast<double>(bytes) * 1e9 / static_cast<double>(time));
}
}  // namespace

std::int64_t Pacer::burst() const noexcept {
    return static_cast<std::int64_t>(std::max<std::uint64_t>(options_.burst_bytes, rate_ / kBurstsASecond));
}

void Pacer::fill(TimeNs now) noexcept {
    if (now <= filled_at_) return;
    const TimeNs passed = std::min(now - filled_at_, kFillMaxNs);
    const auto more = static_cast<std::int64_t>(passed * rate_ / kSecondNs);
    if (more == 0) return;  // less than a byte: keep counting from filled_at_
    filled_at_ = now;
    credit_ = std::min(credit_ + more, burst());
}

TimeNs Pacer::next_time(TimeNs now) const noexcept {
    if (credit_ > 0) return now;
    return now + static_cast<std::uint64_t>(kInARow - credit_) * kSecondNs / rate_;
}

void Pacer::sent(TimeNs now, std::uint32_t bytes, bool paced) noexcept {
    if (paced) {
        fill(now);
        credit_ -= bytes;
    }
    if (now - std::min(now, sent_at_) >= options_.look_ns) looking_ = false;  // after a pause: measure again
    sent_at_ = now;
    unproven_ += bytes;
    sent_ += bytes;
}

void Pacer::asked(TimeNs now, std::uint32_t bytes) noexcept {
    const std::uint64_t shown = std::min<std::uint64_t>(bytes, unproven_);
    unproven_ -= shown;
    proven_ += shown;
    if (!std::exchange(looking_, true)) return look(now);
    const TimeNs passed = now - std::min(now, looked_at_);
    if (passed < (limit_known_ ? options_.look_later_ns : options_.look_ns) || proven_ < options_.look_bytes)
        return;
    arrives_ = a_second(proven_, passed);
    const bool behind = proven_ < (limit_known_ ? sent_ / 20 * 19 : sent_ / 4 * 3);
    const bool used = a_second(sent_, passed) >= rate_ / 4 * 3;
    if (behind) {
        // A little less than the path carries, so that queues on it drain.
        rate_ = std::clamp(arrives_ / 8 * 7, options_.rate_min, rate_);
        limit_known_ = true;
    } else if (used) {
        rate_ = std::min(limit_known_ ? rate_ + rate_ / 16 : rate_ * 2, options_.rate_max);
    }
    look(now);
}

void Pacer::look(TimeNs now) noexcept {
    looked_at_ = now;
    sent_ = proven_ = 0;
}

void Pacer::lost(TimeNs now) noexcept {
    if (lost_at_ != kNever && now < lost_at_ + options_.losses_apart_ns) return;
    lost_at_ = now;
    const std::uint64_t less = arrives_ != 0 ? std::min(arrives_, rate_) / 8 * 7 : rate_ / 2;
    rate_ = std::max(less, options_.rate_min);
    limit_known_ = true;
    looking_ = false;
    arrives_ = unproven_ = 0;
    credit_ = std::min(credit_, std::int64_t{0});
}

}  // namespace gnstor::rdma::roce
