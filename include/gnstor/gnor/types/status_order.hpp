// status_order.hpp: which of several statuses an operation reports. Pure; CPU and GPU lanes.
//
// The worst one, by a total order, so that it depends neither on which drive answered first nor on which lane
// saw it: success, then older versions of doubtful blocks, then refusals that a retry may cure, then a
// drive's final refusals, then local errors, then the broken queue pair and the deadline (whose promise, "a
// registered buffer is still in use", must not be hidden by another status). Within a class the larger number
// is worse.
#pragma once

#include <gnstor/nvme/status.hpp>

namespace gnstor::gnor {

GN_HD
constexpr std::uint32_t severity(nvme::Status s) {
    if (nvme::ok(s)) return 0;
    if (s == nvme::Status::kOlderVersion) return 1;
    if (s == nvme::Status::kTimedOut) return 6;
    if (s == nvme::Status::kQueueError) return 5;
    if (nvme::is_local(s)) return 4;
    return nvme::may_retry(s) ? 2 : 3;
}

GN_HD
constexpr nvme::Status worst(nvme::Status a, nvme::Status b) {
    const std::uint32_t sa = severity(a);
    const std::uint32_t sb = severity(b);
    if (sa != sb) return sa > sb ? a : b;
    return static_cast<std::uint32_t>(a) >= static_cast<std::uint32_t>(b) ? a : b;
}

/// The worst of all members' statuses; the same for all of them.
template <class Group>
GN_HD nvme::Status worst_of(Group group, nvme::Status mine) {
    auto bad = group.ballot(!nvme::ok(mine));
    auto out = nvme::Status::kSuccess;
    for (; !bad.empty(); bad = bad.without_lowest()) {
        const auto code = group.shfl(static_cast<std::uint32_t>(mine), bad.lowest());
        out = worst(out, static_cast<nvme::Status>(code));
    }
    return out;
}

}  // namespace gnstor::gnor
