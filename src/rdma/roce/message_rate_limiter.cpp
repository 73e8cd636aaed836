// message_rate_limiter.cpp: see message_rate_limiter.hpp.
#include "rdma/roce/message_rate_limiter.hpp"

#include <gnstor/base/hash.hpp>

#include <algorithm>
#include <cstring>

namespace gnstor::rdma::roce {

MessageRateLimiter::MessageRateLimiter(const MessageBudgetOptions& options)
    : price_(kSecondNs / std::max(options.a_second, 1u)),
      most_(price_ * options.at_once),
      source_price_(kSecondNs / std::max(options.of_source_a_second, 1u)),
      source_most_(source_price_ * options.of_source_at_once),
      light_price_(kSecondNs / std::max(options.light_a_second, 1u)),
      light_most_(light_price_ * options.light_at_once),
      ready_price_(kSecondNs / std::max(options.ready_a_second, 1u)),
      ready_most_(ready_price_ * options.ready_at_once),
      seed_(options.seed),
      common_{most_, 0} {
    for (Source& source : sources_) {
        source.heard.level = source.connections.level = source_most_;
        source.light.level = light_most_;
        source.ready.level = ready_most_;
    }
}

void MessageRateLimiter::Bucket::fill(TimeNs now, TimeNs most) noexcept {
    if (now <= at) return;
    level += std::min(now - at, most - level);
    at = now;
}

MessageRateLimiter::Source& MessageRateLimiter::at(const Gid& source) noexcept {
    std::uint64_t halves[2];
    static_assert(sizeof halves == sizeof(Gid));
    std::memcpy(halves, source.data(), sizeof halves);
    return sources_[mix64(mix64(halves[0] ^ seed_) ^ halves[1]) % kSources];
}

bool MessageRateLimiter::take_ready(TimeNs now, const Gid& source) noexcept {
    Bucket& ready = at(source).ready;
    ready.fill(now, ready_most_);
    if (ready.level < ready_price_) return false;
    ready.level -= ready_price_;
    return true;
}

bool MessageRateLimiter::take(TimeNs now, const Gid& source, MessageOf of, PeerTrust standing) noexcept {
    Source& own = at(source);
    if (of == MessageOf::kConnection) {
        own.connections.fill(now, source_most_);
        if (own.connections.level < source_price_) return false;
        own.connections.level -= source_price_;
        return true;
    }
    own.heard.fill(now, source_most_);
    own.light.fill(now, light_most_);
    common_.fill(now, most_);
    // Charged even if the message is dropped: a source that keeps flooding stays heavy.
    const bool light = own.light.level >= light_price_;
    if (light) own.light.level -= light_price_;
    if (own.heard.level < source_price_) return false;
    if (of == MessageOf::kStranger) {
        const TimeNs left = !light                            ? most_ / 2
                            : standing == PeerTrust::kNew     ? most_ / 4
                            : standing == PeerTrust::kRetried ? most_ / 8
                                                              : 0;
        if (common_.level < left + price_) return false;
        common_.level -= price_;
    }
    own.heard.level -= source_price_;
    return true;
}

}  // namespace gnstor::rdma::roce
