// block_map_long_test.cpp: the history of block_map_test.cpp, twelve times as long.
#include "deengine/block_map_history.hpp"

#include "support/seed.hpp"

namespace gnstor::deengine {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kOperations = 100'000;  // a sanitizer sees the shorter one
#else
constexpr std::uint64_t kOperations = 24'000'000;
#endif

TEST(BlockMap, AgreesWithAPlainMapOverTensOfMillionsOfOperations) {
    agree_with_a_plain_map(kOperations, test::run_seed());
}

}  // namespace
}  // namespace gnstor::deengine
