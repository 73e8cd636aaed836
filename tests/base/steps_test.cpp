// Tables of steps: in order, undone in reverse from the one that failed, and the error says which that was.
#include <gnstor/base/steps.hpp>

#include <gtest/gtest.h>

#include <string>

namespace gnstor {
namespace {

struct House {
    std::string did;
    bool roof_fails = false;

    Result<void> dig() { return done("dig"); }
    void fill() { did += " fill"; }
    Result<void> wall() { return done("wall"); }
    Result<void> roof() {
        if (roof_fails) return error(Errc::kNoSpace, "no tiles are left");
        return done("roof");
    }
    void unroof() { did += " unroof"; }
    Result<void> move_in() { return done("move in"); }

  private:
    Result<void> done(const char* what) {
        did += std::string(did.empty() ? "" : " ") + what;
        return {};
    }
};

constexpr Step<House> kBuild[] = {
    {"foundation", &House::dig, &House::fill},
    {"walls", &House::wall, nullptr},
    {"roof", &House::roof, &House::unroof},
    {"people", &House::move_in, nullptr},
};

TEST(Steps, RunInTheOrderOfTheTable) {
    House house;
    EXPECT_TRUE(run_steps(house, std::span<const Step<House>>(kBuild), "building").ok());
    EXPECT_EQ(house.did, "dig wall roof move in");
}

TEST(Steps, AFailureUndoesWhatWasDoneInReverseAndNamesItsStep) {
    House house;
    house.roof_fails = true;
    const Result<void> built = run_steps(house, std::span<const Step<House>>(kBuild), "building");
    ASSERT_FALSE(built.ok());
    EXPECT_EQ(built.error().code, Errc::kNoSpace);
    EXPECT_EQ(built.error().message, "building, step \"roof\": no tiles are left");
    EXPECT_EQ(house.did, "dig wall fill") << "the failed step must not be undone, and no later step may run";
}

TEST(Steps, RunEveryStepContinuesAfterAFailedStep) {
    House house;
    house.roof_fails = true;
    std::string failed;
    run_every_step(house, std::span<const Step<House>>(kBuild), [&](const char* step, const Error& why) {
        failed += std::string(step) + ": " + why.message;
    });
    EXPECT_EQ(house.did, "dig wall move in");
    EXPECT_EQ(failed, "roof: no tiles are left");
}

}  // namespace
}  // namespace gnstor
