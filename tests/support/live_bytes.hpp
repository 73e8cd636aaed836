// live_bytes.hpp: what a test program has allocated and not given back, for tests that say that something
// does not grow. By operator new alone (not malloc(), mmap() or the kernel), and as much as was asked for, so
// it is the same under sanitizers. A program that asks links live_bytes.cpp. Any thread.
#pragma once

#include <cstdint>

namespace gnstor::test {

[[nodiscard]] std::int64_t live_bytes() noexcept;
/// The most that it was since the last begin_peak().
[[nodiscard]] std::int64_t peak_live_bytes() noexcept;
void begin_peak() noexcept;

}  // namespace gnstor::test
