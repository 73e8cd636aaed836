// result_test.cpp: statistics and the raw result.
#include "bench/result.hpp"

#include <gtest/gtest.h>

#include <numeric>

namespace gnstor::bench {
namespace {

TEST(Summary, NamesTheLatenciesAtTheirRanks) {
    std::vector<std::uint32_t> all(10'001);
    std::iota(all.rbegin(), all.rend(), 0u);
    const Latency l = summarize(all);
    EXPECT_EQ(l.samples, all.size());
    EXPECT_DOUBLE_EQ(l.mean_ns, 5000);
    EXPECT_EQ(l.p50_ns, 5000u);
    EXPECT_EQ(l.p99_ns, 9900u);
    EXPECT_EQ(l.p999_ns, 9990u);
    EXPECT_EQ(l.max_ns, 10'000u);
    EXPECT_EQ(summarize({}).samples, 0u);
    EXPECT_EQ(summarize({7}).p999_ns, 7u);
}

TEST(RawResult, OmitsFieldsThatWereNotMeasured) {
    Case c;
    c.parameters = {{"operation", "read"}, {"bytes", 4096}};
    Repeat bare;
    bare.seconds = 0.5;
    bare.operations = 1000;
    bare.bytes = 4096000;
    Repeat full = bare;
    full.latency = summarize({1000, 2000, 3000});
    full.engine_cpu_seconds = 0.25;
    full.lane_cpu_seconds = 0.125;
    full.bytes_a_block = 8.5;
    full.times_reference = 1.25;
    c.repeats = {bare, full};
    const nlohmann::json run = to_json("path", {"gnstor_bench", "path"}, "abc", {{"lanes", "cpu"}}, {c});
    EXPECT_EQ(run["schema"], 1);
    EXPECT_NE(run["machine"].value("compiler", "").find("++ "), std::string::npos) << run["machine"];
    const nlohmann::json& first = run["cases"][0]["repeats"][0];
    EXPECT_FALSE(first.contains("latency_ns"));
    EXPECT_FALSE(first.contains("engine_cpu_seconds"));
    EXPECT_FALSE(first.contains("lane_cpu_seconds"));
    const nlohmann::json& second = run["cases"][0]["repeats"][1];
    EXPECT_EQ(second["latency_ns"]["p50"], 2000);
    EXPECT_EQ(second["engine_cpu_seconds"], 0.25);
    EXPECT_FALSE(first.contains("bytes_a_block"));
    EXPECT_FALSE(first.contains("times_reference"));
    EXPECT_EQ(second["bytes_a_block"], 8.5);
    EXPECT_EQ(second["times_reference"], 1.25);
    EXPECT_EQ(second["lane_cpu_seconds"], 0.125);
    const std::string shown = table({c});
    EXPECT_NE(shown.find("2000 (2000 .. 2000)"), std::string::npos) << shown;
}

TEST(RawResult, ACaseReadBackEqualsTheCaseThatWasWritten) {
    Case c;
    c.parameters = {{"path", "gd"}, {"bytes", 4096}};
    Repeat r;
    r.seconds = 0.5;
    r.operations = 1000;
    r.bytes = 4096000;
    r.latency = summarize({1000, 2000, 3000});
    r.engine_cpu_seconds = 0.25;
    r.checked = 7;
    r.more = {{"stage_log_us", 12.5}, {"array_cpu_seconds", 0.125}};
    c.repeats = {r, r};
    const nlohmann::json kept = to_json("load", {}, "abc", {}, {c})["cases"];
    const auto back = case_from_json(kept[0]);
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(to_json("load", {}, "abc", {}, {*back})["cases"], kept);
    EXPECT_FALSE(case_from_json({{"parameters", 1}}).ok());
    EXPECT_FALSE(case_from_json({{"parameters", 1}, {"repeats", {{{"seconds", "long"}}}}}).ok());
    for (const char* text :
         {"7", "[]", R"({"parameters": {}, "repeats": 5})", R"({"parameters": {}, "repeats": [5]})",
          R"({"parameters": {}, "repeats": [{"latency_ns": 5, "seconds": "x"}]})",
          R"({"parameters": {}, "repeats": [{"latency_ns": {"p50": "fast"}}]})"})
        EXPECT_FALSE(case_from_json(nlohmann::json::parse(text)).ok()) << text;
}

TEST(CostTable, GivesNanosecondsAnOperationAndCore) {
    Case c;
    c.parameters = {{"operation", "read"}, {"cores", 2}};
    for (const double seconds : {1.0, 3.0, 2.0}) {
        Repeat r;
        r.seconds = seconds;
        r.operations = 20'000'000;
        c.repeats.push_back(r);
    }
    const std::string shown = cost_table({c});
    EXPECT_NE(shown.find("200.0 (100.0 .. 300.0)"), std::string::npos) << shown;
}

TEST(RawResult, AFileThatCannotBeWrittenIsNamed) {
    const auto done = write_json("/nonexistent/folder/result.json", nlohmann::json::object());
    ASSERT_FALSE(done.ok());
    EXPECT_NE(done.error().message.find("/nonexistent/folder/result.json"), std::string::npos);
}

}  // namespace
}  // namespace gnstor::bench
