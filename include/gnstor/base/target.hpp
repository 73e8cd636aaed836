// target.hpp: which processor a function is compiled for.
//
// GN_HD marks code that runs on CPU and GPU lanes alike. In a build without CUDA it is empty, so nothing of
// CUDA is needed. GN_DEVICE_PASS is 1 only while nvcc compiles the GPU side of a translation unit.
//
// GN_DEVICE_UNROLL stands before a loop whose arrays must stay in registers on the GPU: an array in local
// memory makes each load wait for the one before it, as what it brought is stored in between.
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

// GN_DEVICE_ROLLED stands before a loop that mostly ends at once: unrolled, it is instructions that a lone
// warp waits for, one line of them after the other.
#if GN_DEVICE_PASS
#define GN_DEVICE_UNROLL _Pragma("unroll")
#define GN_DEVICE_ROLLED _Pragma("unroll 1")
#else
#define GN_DEVICE_UNROLL
#define GN_DEVICE_ROLLED
#endif

// Large functions are compiled once a program, not once a call: kernels stay small, and so does nvcc's time.
#if defined(__CUDACC__)
#define GN_NOINLINE __noinline__
#else
#define GN_NOINLINE
#endif

// Small functions whose arguments must stay in the caller's registers: what a lone lane waits for.
#if defined(__CUDACC__)
#define GN_INLINE __forceinline__
#else
#define GN_INLINE inline
#endif
