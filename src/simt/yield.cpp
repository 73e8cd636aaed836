// yield.cpp: the yield hook of each thread. Set by test warps in the threads of their lanes; null elsewhere.
#include <gnstor/simt/yield.hpp>

namespace gnstor::simt {

#if defined(GN_TEST_WARPS)
YieldHook*& this_thread_yield_hook() noexcept {
    static thread_local YieldHook* hook = nullptr;
    return hook;
}
#endif

}  // namespace gnstor::simt
