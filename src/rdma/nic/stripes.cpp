// stripes.cpp: leases of stripes to threads, and heavy_fence().
#include "rdma/nic/stripes.hpp"

#include <gnstor/base/log.hpp>

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace gnstor::rdma {
namespace {

constexpr std::uint32_t kFenceTries = 10'000;

/// One bit per leased stripe.
std::atomic<std::uint32_t>& leases() noexcept {
    static std::atomic<std::uint32_t> bits{0};
    return bits;
}

/// Returns the thread's stripe when the thread ends. The next owner acquires its counts.
struct Lease {
    std::uint32_t stripe = kSharedStripe;

    Lease() noexcept {
        std::uint32_t seen = leases().load(std::memory_order_relaxed);
        for (;;) {
            const auto free = static_cast<std::uint32_t>(std::countr_one(seen));
            if (free >= kSharedStripe) return;
            if (leases().compare_exchange_weak(seen, seen | (1u << free), std::memory_order_acquire)) {
                stripe = free;
                return;
            }
        }
    }
    ~Lease() {
        // Later additions of this thread (destructors of other thread-local objects) go to the shared
        // stripe.
        detail::stripe = kSharedStripe;
        detail::light = false;
        if (stripe != kSharedStripe) leases().fetch_and(~(1u << stripe), std::memory_order_release);
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
};

/// Whether heavy_fence() makes other threads execute a fence.
bool fences_are_asymmetric() noexcept {
#if defined(__SANITIZE_THREAD__)
    return false;
#else
    static const bool registered =
        ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
    return registered;
#endif
}

}  // namespace

std::uint32_t detail::lease_stripe() noexcept {
    thread_local const Lease lease;
    stripe = lease.stripe;
    light = stripe != kSharedStripe && fences_are_asymmetric();
    return stripe;
}

void heavy_fence() noexcept {
    if (!fences_are_asymmetric()) return;
    // membarrier may fail for lack of memory. Returning without the fence would let the caller free
    // memory that other threads still use: so if it keeps failing, the process ends here, with a log
    // entry.
    for (std::uint32_t tries = 0; ::syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0;) {
        if (++tries == kFenceTries) {
            log_error("rdma: the system call membarrier keeps failing, so the process is terminated: {}",
                      std::strerror(errno));
            std::abort();
        }
        ::sched_yield();
    }
}

}  // namespace gnstor::rdma
