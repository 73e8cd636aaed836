// target.hpp: which processor a function is compiled for.
//
// GN_HD marks code that runs on CPU and GPU lanes alike. In a build without CUDA it is empty, so nothing of
// CUDA is needed. GN_DEVICE_PASS is 1 only while nvcc compiles the GPU side of a translation unit.
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
