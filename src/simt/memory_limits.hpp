// memory_limits.hpp: what pinned and device memory are rounded to and refused beyond.
#pragma once

#include <cstddef>

namespace gnstor::simt {

inline constexpr std::size_t kHugePage = std::size_t{2} << 20;
inline constexpr std::size_t kBytesMax = std::size_t{1}
                                         << 44;  ///< of one allocation: larger sizes are mistakes

}  // namespace gnstor::simt
