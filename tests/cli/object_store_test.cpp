// object_store_test.cpp: what an object store does with names, whoever asks it.
#include "cli/object_store.hpp"
#include "ssd/scratch.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
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

// A killed put leaves a volume without a length, whose lease then ends: an empty object's has no length, too.
TEST(ObjectStore, AnInterruptedPutOfAnySizeDiffersFromAnEmptyObjectByItsVolume) {
    nvme::VolumeRecord record{};
    record.birth_epoch = 1;
    record.epoch = 2;
    for (const std::uint64_t bytes : {0u, 1u, 4095u, 4096u, 4097u, 1u << 20}) {
        record.geometry.capacity_blocks = capacity_for(bytes) / nvme::kBlockBytes;
        EXPECT_GE(record.geometry.capacity_blocks * nvme::kBlockBytes, bytes);
        EXPECT_EQ(is_whole(record), bytes == 0) << bytes << " bytes were to be stored";
    }
}

/// Input whose reader is killed.
class Killing final : public std::streambuf {
    int_type underflow() override {
        ::raise(SIGKILL);
        return traits_type::eof();
    }
};

TEST(ObjectStore, AKilledPutOfLessThanABlockLeavesNoObject) {
    const ssd::testing::Scratch scratch;
    ArrayOptions options;
    options.directory = scratch / "store";
    options.ssds = 1;
    options.ssd_capacity_bytes = 64u << 20;
    const pid_t child = ::fork();
    ASSERT_NE(child, -1);
    if (child == 0) {
        const auto store = open_object_store(options, true).value();
        std::istringstream first("contents");
        if (!store->put("first", first, 8, {}).ok()) ::_exit(1);
        Killing end;
        std::istream from(&end);
        (void)store->put("second", from, 8, {});
        ::_exit(2);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "exit status " << status;
    const auto store = open_object_store(options, false).value();
    const auto objects = store->list();
    ASSERT_TRUE(objects.ok()) << objects.error().message;
    ASSERT_EQ(objects->size(), 1u);
    EXPECT_EQ(objects->front().name, "first");
    std::ostringstream to;
    const auto got = store->get("second", to, false, {});
    ASSERT_FALSE(got.ok());
    EXPECT_EQ(got.error().code, Errc::kNotFound) << got.error().message;
}

}  // namespace
}  // namespace gnstor::cli
