// fio_test.cpp: what fio says of itself is taken over as it is, and what is no such thing is refused.
#include "bench/fio.hpp"

#include <gtest/gtest.h>

namespace gnstor::bench {
namespace {

/// As fio 3.33 tells of one group of two threads, shortened; a note stands before it.
constexpr char kOutput[] = R"(note: both iodepth >= 1 and synchronous I/O engine are selected
{
  "fio version" : "fio-3.33",
  "jobs" : [
    {
      "jobname" : "gnstor", "error" : 0, "job_runtime" : 4000, "usr_cpu" : 10.0, "sys_cpu" : 40.0,
      "read" : {
        "io_bytes" : 4096000, "total_ios" : 1000, "runtime" : 2000,
        "lat_ns" : { "min" : 100, "max" : 9000, "mean" : 1234.5, "N" : 1000,
                     "percentile" : { "50.000000" : 1200, "99.000000" : 4000, "99.900000" : 8000 } }
      },
      "write" : { "io_bytes" : 0, "total_ios" : 0, "runtime" : 0 }
    }
  ]
})";

TEST(Fio, ItsMeasurementsAreReadFromItsOutput) {
    const Result<Repeat> r = fio_repeat(kOutput, false);
    ASSERT_TRUE(r.ok()) << r.error().message;
    EXPECT_DOUBLE_EQ(r->seconds, 2);
    EXPECT_EQ(r->operations, 1000u);
    EXPECT_EQ(r->bytes, 4096000u);
    EXPECT_DOUBLE_EQ(r->latency.mean_ns, 1234.5);
    EXPECT_EQ(r->latency.p50_ns, 1200u);
    EXPECT_EQ(r->latency.p99_ns, 4000u);
    EXPECT_EQ(r->latency.p999_ns, 8000u);
    EXPECT_EQ(r->latency.max_ns, 9000u);
    EXPECT_DOUBLE_EQ(r->lane_cpu_seconds, 2) << "half of 4 s that two threads ran, in user space and kernel";
}

TEST(Fio, OutputWithoutAResultIsRefused) {
    for (const std::string output :
         {"", "fio: not found", "{", "[]", "{}", R"({"jobs": []})", R"({"jobs": 7})", R"({"jobs": [7]})",
          R"({"jobs": [{"error": 0, "read": {"runtime": 0, "total_ios": 5}}]})",
          R"({"jobs": [{"error": 0, "read": {"runtime": "long", "total_ios": 5}}]})",
          R"({"jobs": [{"error": 22, "read": {"runtime": 10, "total_ios": 5}}]})"})
        EXPECT_FALSE(fio_repeat(output, false).ok()) << output;
    EXPECT_FALSE(fio_repeat(kOutput, true).ok()) << "fio's output contains no write";
}

}  // namespace
}  // namespace gnstor::bench
