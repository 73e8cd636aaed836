// yield.hpp: where a test warp may take the processor away from a lane.
//
// In a test build (GN_TEST_WARPS) each atomic first calls the hook of the calling thread, if it has one, so
// that a seeded scheduler can interleave lanes at the points where interleaving matters. Otherwise it
// compiles to nothing.
#pragma once

#include <gnstor/base/target.hpp>

namespace gnstor::simt {

/// What a test scheduler installs in a lane's thread; called before each atomic of that thread.
class YieldHook {
  public:
    virtual ~YieldHook() = default;
    virtual void on_atomic() = 0;
};

#if defined(GN_TEST_WARPS) && !defined(__CUDACC__)
/// The calling thread's hook, or null.
YieldHook*& this_thread_yield_hook() noexcept;
inline void yield_point() {
    if (YieldHook* hook = this_thread_yield_hook()) hook->on_atomic();
}
#else
GN_HD
inline void yield_point() {}
#endif

}  // namespace gnstor::simt
