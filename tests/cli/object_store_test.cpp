// object_store_test.cpp: what an object store does with names, whoever asks it.
#include "cli/array_factory.hpp"
#include "ssd/scratch.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace gnstor::cli {
namespace {

TEST(ObjectStore, AnObjectNameThatLeavesTheFolderIsRefusedBeforeAFileIsCreated) {
    const ssd::testing::Scratch scratch;
    ArrayOptions options;
    options.directory = scratch / "store";
    options.ssds = 1;
    options.ssd_capacity_bytes = 64u << 20;
    const auto store = open_object_store(options, true).value();
    // The sign that another store's put goes on, beside this folder and in one below it.
    std::filesystem::create_directories(options.directory / "below");
    const std::filesystem::path others[] = {scratch / "x.putting", options.directory / "below" / "x.putting"};
    for (const auto& file : others) std::ofstream(file) << "theirs";
    for (const std::string name : {"../x", "below/x", "", ".", ".x", "a\nb"}) {
        std::istringstream from("contents");
        const auto put = store->put(name, from, 8, {});
        ASSERT_FALSE(put.ok()) << name;
        EXPECT_EQ(put.error().code, Errc::kInvalidArgument) << name << ": " << put.error().message;
    }
    for (const auto& file : others) EXPECT_TRUE(std::filesystem::exists(file)) << file;
    std::istringstream from("contents");
    const auto put = store->put("x", from, 8, {});
    EXPECT_TRUE(put.ok()) << put.error().message;
}

}  // namespace
}  // namespace gnstor::cli
