// wire_report_test.cpp: how cases of `bench wire` are held against each other, and what fails the run.
#include "bench/wire_report.hpp"

#include <gtest/gtest.h>

namespace gnstor::bench::wire_bench {
namespace {

Case case_of(nlohmann::json parameters, const std::vector<double>& gigabytes, double overruns = 0) {
    Case c;
    c.parameters = std::move(parameters);
    for (const double g : gigabytes) {
        Repeat r;
        r.seconds = 1;
        r.bytes = static_cast<std::uint64_t>(g * 1e9);
        r.operations = r.bytes / c.parameters.value("bytes", 1u);
        r.engine_cpu_seconds = 1;
        if (c.parameters["through"] == "udp") {
            r.more["retransmissions"] = 2;
            r.more["receive_overruns"] = overruns;
        }
        c.repeats.push_back(r);
    }
    return c;
}

nlohmann::json wire(const char* through, const char* operation, unsigned bytes, unsigned depth) {
    return {{"through", through}, {"operation", operation}, {"bytes", bytes}, {"depth", depth}};
}

nlohmann::json udp_socket(unsigned bytes, unsigned datagram) {
    return {{"through", "UDP socket"}, {"bytes", bytes}, {"datagram", datagram}};
}

TEST(WireVerdicts, ShmIsComparedWithLoopOfTheSameCaseAndRepeat) {
    const auto all = judge({case_of(wire("loop", "RDMA WRITE", 4096, 32), {10, 1, 4}),
                            case_of(wire("shm", "RDMA WRITE", 4096, 32), {9, 0.7, 4}),
                            case_of(wire("shm", "RDMA READ", 4096, 32), {1, 1, 1}),
                            case_of(wire("shm", "RDMA WRITE", 4096, 1), {1, 1, 1}),
                            case_of(wire("shm", "RDMA WRITE", 65536, 32), {1, 1, 1})});
    ASSERT_EQ(all.ratios.size(), 1u);
    EXPECT_NEAR(all.ratios[0].least, 0.7, 1e-6);
    EXPECT_NEAR(all.ratios[0].median, 0.9, 1e-6);
    EXPECT_NEAR(all.ratios[0].most, 1.0, 1e-6);
    EXPECT_EQ(all.ratios[0].target, 0.8);
    EXPECT_TRUE(all.ratios[0].met());
    EXPECT_NE(text_of(all).find("aimed at 0.80: met"), std::string::npos) << text_of(all);
}

TEST(WireVerdicts, UdpHasATargetOfHalfTheRateOfWhole64KibMessagesAndIsComparedWithTheOtherSockets) {
    const auto all = judge(
        {case_of(wire("udp", "RDMA READ", 65536, 32), {1}), case_of(wire("udp", "RDMA READ", 65536, 1), {1}),
         case_of(udp_socket(65536, 4096), {2}), case_of(udp_socket(65536, 65507), {4}),
         case_of(udp_socket(4096, 4096), {2}), case_of({{"through", "TCP socket"}, {"bytes", 65536}}, {1})});
    ASSERT_EQ(all.ratios.size(), 3u);
    EXPECT_EQ(all.ratios[0].target, 0);
    EXPECT_EQ(all.ratios[1].target, 0.5);
    EXPECT_NEAR(all.ratios[1].median, 0.25, 1e-6);
    EXPECT_FALSE(all.ratios[1].met());
    EXPECT_EQ(all.ratios[2].target, 0);
    EXPECT_NE(text_of(all).find("aimed at 0.50: MISSED"), std::string::npos) << text_of(all);
    const nlohmann::json kept = to_json(all);
    EXPECT_EQ(kept["ratios"][1]["met"], false);
    EXPECT_FALSE(kept["ratios"][0].contains("met"));
}

TEST(WireVerdicts, PacketsLostByOurOwnOverrunFailTheRun) {
    const auto kept = judge({case_of(wire("udp", "RDMA READ", 4096, 32), {1, 1})});
    EXPECT_TRUE(promise_kept(kept).ok());
    EXPECT_EQ(kept.retransmissions, 4u);
    const auto broken = judge({case_of(wire("udp", "RDMA READ", 4096, 32), {1, 1}),
                               case_of(wire("udp", "RDMA WRITE", 4096, 1), {1, 1}, 3)});
    EXPECT_EQ(broken.receive_overruns, 6u);
    const auto failed = promise_kept(broken);
    ASSERT_FALSE(failed.ok());
    EXPECT_NE(failed.error().message.find("6 packets"), std::string::npos) << failed.error().message;
    EXPECT_NE(text_of(broken).find("6 lost by our own overrun (aimed at 0: MISSED)"), std::string::npos);
    EXPECT_EQ(to_json(broken)["receive_overruns"], 6);
}

TEST(WireVerdicts, ARunTooShortToMoveAnyByteHasNoRatioButIsListed) {
    const std::vector<Case> cases{case_of(wire("loop", "RDMA WRITE", 4096, 32), {0}),
                                  case_of(wire("shm", "RDMA WRITE", 4096, 32), {1})};
    EXPECT_TRUE(judge(cases).ratios.empty());
    const std::string text = wire_table(cases);
    EXPECT_EQ(text.find("inf"), std::string::npos) << text;
    EXPECT_EQ(text.find("nan"), std::string::npos) << text;
}

}  // namespace
}  // namespace gnstor::bench::wire_bench
