// paper_test.cpp: which cases of a figure are kept: those in which all data was right, of this machine.
#include "bench/paper.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

namespace gnstor::bench {
namespace {

/// Makes figures up; data goes wrong in chosen cases.
class MadeUp final : public CaseRunner {
  public:
    Result<Case> measure(const LoadCase& c) override {
        Case made;
        made.parameters = parameters_of(c);
        measured.push_back(made.parameters);
        if (wrong_at.contains(measured.size())) ++wrong_;
        Repeat r;
        r.seconds = 1;
        r.operations = 1000;
        r.bytes = std::uint64_t{1000} * c.bytes;
        r.latency = summarize({1000, 2000, 3000});
        made.repeats.push_back(r);
        return made;
    }
    [[nodiscard]] std::uint64_t wrong() const override { return wrong_; }

    std::set<std::size_t> wrong_at;  ///< counted from 1
    std::vector<nlohmann::json> measured;

  private:
    std::uint64_t wrong_ = 0;
};

class Figure : public testing::Test {
  protected:
    void SetUp() override {
        char name[] = "/tmp/gnstor-paper-XXXXXX";
        ASSERT_NE(mkdtemp(name), nullptr);
        folder_ = name;
        options_.figure = 13;
        options_.paths = {"gnor", "gd"};
        options_.settings.steady = true;
        options_.json = (folder_ / "figure.json").string();
        options_.settings = complete(options_.settings).value();
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    /// What the command ends with, and what it measured.
    bool command(MadeUp& runner) {
        const auto wanted = figure_cases(options_.figure, options_.paths).value();
        const auto done = measure_figure(options_, wanted, runner);
        EXPECT_TRUE(done.ok()) << done.error().message;
        return done.ok() && *done;
    }
    nlohmann::json kept() const { return nlohmann::json::parse(std::ifstream(options_.json)); }

    std::filesystem::path folder_;
    PaperOptions options_;
};

TEST_F(Figure, ACaseWithWrongDataIsNotKeptAndIsMeasuredAgain) {
    MadeUp first;
    first.wrong_at = {3, 8};
    EXPECT_FALSE(command(first));
    EXPECT_EQ(first.measured.size(), 8u) << "the other cases must still be measured";
    EXPECT_EQ(kept()["cases"].size(), 6u);
    for (const auto& one : kept()["cases"]) {
        EXPECT_NE(one["parameters"], first.measured[2]);
        EXPECT_NE(one["parameters"], first.measured[7]);
    }
    MadeUp second;
    second.wrong_at = {2};
    EXPECT_FALSE(command(second)) << "one case returned wrong data again";
    EXPECT_EQ(second.measured, (std::vector{first.measured[2], first.measured[7]}));
    MadeUp third;
    EXPECT_TRUE(command(third));
    EXPECT_EQ(third.measured, std::vector{first.measured[7]});
    EXPECT_EQ(kept()["cases"].size(), 8u);
}

TEST_F(Figure, CasesOfAnotherMachineAreMeasuredAgain) {
    MadeUp first;
    ASSERT_TRUE(command(first));
    const nlohmann::json here = kept()["machine"];
    const auto measured_with = [&](const char* key, const nlohmann::json& value) {
        nlohmann::json changed = kept();
        changed["machine"][key] = value;
        std::ofstream(options_.json) << changed;
        MadeUp again;
        EXPECT_TRUE(command(again));
        return again.measured.size();
    };
    EXPECT_EQ(measured_with("kernel", here["kernel"]), 0u);
    EXPECT_EQ(measured_with("memory", "1 kB"), 0u) << "the same machine, started again";
    for (const char* key : {"cpu", "gpu", "kernel", "cores"}) {
        EXPECT_EQ(measured_with(key, "another"), 8u) << key;
        EXPECT_EQ(kept()["cases"].size(), 8u);
        EXPECT_EQ(kept()["machine"], here) << "nothing of the other machine's result may remain";
    }
}

}  // namespace
}  // namespace gnstor::bench
