// id_set_test.cpp: the set of command ids under way, beside std::set, as full as an owner may make it.
#include "nvmf/protocol/id_set.hpp"

#include <gnstor/base/hash.hpp>

#include <gtest/gtest.h>

#include <set>

#include "support/count.hpp"
#include "support/seed.hpp"

namespace gnstor::nvmf {
namespace {

/// Ids as hosts choose them: anything; a slot below a count; all in a row.
std::uint16_t draw(SplitMix64& random, std::uint32_t manner, std::uint32_t most) {
    if (manner == 0) return static_cast<std::uint16_t>(random.next());
    if (manner == 1) return static_cast<std::uint16_t>(random.below(most) | (random.below(4) << 7));
    return static_cast<std::uint16_t>(random.below(2 * most));
}

TEST(IdSet, AgreesWithAPlainSetUnderRandomInsertionsAndRemovals) {
    SplitMix64 random(test::run_seed());
    std::uint64_t steps = 0;
    for (const std::uint32_t most : {1u, 2u, 31u, 64u, 100u, 1024u})
        for (std::uint32_t manner = 0; manner < 3; ++manner) {
            IdSet ids(most);
            std::set<std::uint16_t> expected;
            for (std::uint32_t i = 0; i < 40'000; ++i, ++steps) {
                const std::uint16_t id = draw(random, manner, most);
                ASSERT_EQ(ids.has(id), expected.contains(id)) << "id " << id << " of at most " << most;
                if (!expected.contains(id) && expected.size() == most) {
                    // Full: one goes instead, in no order.
                    auto other = expected.lower_bound(id);
                    if (other == expected.end()) other = expected.begin();
                    ids.toggle(*other);
                    expected.erase(other);
                    continue;
                }
                ids.toggle(id);
                if (!expected.insert(id).second) expected.erase(id);
            }
            for (std::uint32_t id = 0; id <= 0xFFFF; ++id)
                ASSERT_EQ(ids.has(static_cast<std::uint16_t>(id)),
                          expected.contains(static_cast<std::uint16_t>(id)))
                    << id;
        }
    test::count("nvmf_id_set_steps", steps);
    ASSERT_GE(steps, 600'000u);
}

}  // namespace
}  // namespace gnstor::nvmf
