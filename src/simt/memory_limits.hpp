// memory_limits.hpp: the rounding unit and the largest size of pinned and device memory.
#pragma once

#include <cstddef>

namespace gnstor::simt {

inline constexpr std::size_t kHugePage = std::size_t{2} << 20;
inline constexpr std::size_t kBytesMax = std::size_t{1}
                                         << 44;  ///< of one allocation: larger sizes are mistakes

}  // namespace gnstor::simt
