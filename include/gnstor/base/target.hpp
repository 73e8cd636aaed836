// target.hpp: which processor a function is compiled for.
//
// GN_HD marks code that runs on CPU and GPU lanes alike. In a build without CUDA it is empty, so nothing of
// CUDA is needed. GN_DEVICE_PASS is 1 only while nvcc compiles the GPU side of a translation unit.
//
// GN_DEVICE_UNROLL stands before a loop whose arrays must stay in registers on the GPU: with an array in
// local memory each load waits for the one before it, whose value is stored in between.
#pragma once

#if defined(__CUDACC__)
#define GN_HD __host__ __device__
#else
#define GN_HD
#endif

#if defined(__CUDA_ARCH__)
#define GN_DEVICE_PASS 1
#else
#define GN_DEVICE_PASS 0
#endif

// GN_DEVICE_ROLLED stands before a loop that mostly ends at once: if it is unrolled, a lone warp waits for
// the fetch of its instructions, one cache line after the other.
#if GN_DEVICE_PASS
#define GN_DEVICE_UNROLL _Pragma("unroll")
#define GN_DEVICE_ROLLED _Pragma("unroll 1")
#else
#define GN_DEVICE_UNROLL
#define GN_DEVICE_ROLLED
#endif

// Large functions are not inlined into each caller: kernels stay small, and nvcc's compile time short.
#if defined(__CUDACC__)
#define GN_NOINLINE __noinline__
#else
#define GN_NOINLINE
#endif

// Small functions on a single lane's critical path, whose arguments must stay in the caller's registers.
#if defined(__CUDACC__)
#define GN_INLINE __forceinline__
#else
#define GN_INLINE inline
#endif
