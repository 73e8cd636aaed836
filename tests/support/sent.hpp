// sent.hpp: calls with a short deadline that have to be under way when it passes.
#pragma once

#include <gnstor/nvme/status.hpp>
#include <gnstor/simt/time.hpp>

#include <cstdint>

namespace gnstor::test {

/// What a call says that gets `ns` from now. A thread that stands still between the clock and the send sends
/// nothing in time: the call says kNotSent, and is made again with four times as long. Five times in all, so
/// that one which never sends is found out.
template <class Call>
nvme::Status sent_in(std::uint64_t ns, Call call) {
    nvme::Status status = call(simt::Deadline::in_ns(ns));
    for (int again = 0; again < 4 && status == nvme::Status::kNotSent; ++again)
        status = call(simt::Deadline::in_ns(ns *= 4));
    return status;
}

}  // namespace gnstor::test
