// cuda_result.hpp: errors of the CUDA runtime as values. Only in builds with CUDA.
#pragma once

#include <gnstor/base/result.hpp>

#if GN_WITH_CUDA
#include <cuda_runtime_api.h>

namespace gnstor::simt {

/// Ok, or an Error that says what was tried. Clears CUDA's last error, which a later call would report again.
inline Result<void> cuda_result(cudaError_t code, const char* tried) {
    if (code == cudaSuccess) return {};
    (void)cudaGetLastError();
    const Errc kind = code == cudaErrorMemoryAllocation ? Errc::kNoSpace : Errc::kIo;
    return error(kind, "the GPU could not {}: {} ({})", tried, cudaGetErrorString(code),
                 cudaGetErrorName(code));
}

}  // namespace gnstor::simt
#endif
