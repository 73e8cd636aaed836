// engine_busy_test.cpp: which threads were how busy, as it is kept and as people see it.
#include "bench/engine_busy.hpp"

#include <gtest/gtest.h>

namespace gnstor::bench {
namespace {

TEST(EngineBusy, IsTheShareOfTheMeasuredTimeAndNeverMore) {
    Repeat r;
    r.seconds = 2;
    add_engine(r, {{"gn-nic-0", 5'000'000'000, 1'000'000'000}, {"gn-ssd-1", 0, 0}},
               {{"gn-nic-0", 6'500'000'000, 1'500'000'000}, {"gn-ssd-1", 2'000'000'000, 2'100'000'000}});
    EXPECT_DOUBLE_EQ(r.engine_cpu_seconds, 3.5);
    EXPECT_DOUBLE_EQ(r.more.at("busy_gn-nic-0"), 0.25);
    EXPECT_DOUBLE_EQ(r.more.at("busy_gn-ssd-1"), 1);
}

TEST(EngineBusy, LinesNameThreadsByNumberAndTheMedian) {
    Case c;
    c.parameters = {{"operation", "read"}};
    for (const double busy : {0.5, 0.9, 0.7}) {
        Repeat r;
        r.more = {{"busy_gn-nic-0", busy}, {"busy_gn-nic-2", 0.2}, {"busy_gn-nic-10", 0.1}, {"other", 5}};
        c.repeats.push_back(r);
    }
    const std::string lines = busy_lines({c});
    EXPECT_NE(lines.find("read"), std::string::npos) << lines;
    EXPECT_NE(lines.find("gn-nic-0..10 70 20 10 %\n"), std::string::npos) << lines;
    EXPECT_EQ(busy_lines({}), "");
    c.repeats.assign(1, Repeat{});
    EXPECT_EQ(busy_lines({c}), "") << "plain copies have no engine threads";
}

}  // namespace
}  // namespace gnstor::bench
