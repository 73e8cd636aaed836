// manager_rig.hpp: a Manager on four model drives and a store, for tests: started again, healed and refused
// at will. What the model drives saw violated fails the test at its end.
#pragma once

#include "daemon/decisions/manager.hpp"
#include "daemon/model_ssd.hpp"

#include <gtest/gtest.h>

namespace gnstor::daemon::test {

/// For tests of grants that end.
inline constexpr std::uint32_t kGrantMs = 9'000;
inline constexpr std::uint64_t kBoundMs = kGrantMs + 90 + 10;  // and 1 %, and a clock's grain

/// Neither saves nor loads while it is broken.
class FlakyStore final : public RecordStore {
  public:
    bool broken = false;
    bool keeps = false;  ///< keeps what it is given all the same
    bool full = false;   ///< loads, and cannot save
    Result<Records> load() override {
        if (broken) return error(Errc::kIo, "the store is told to be broken");
        return inner_.load();
    }
    Result<void> save(const Change& change) override {
        if (broken && keeps) (void)inner_.save(change).ok();
        if (broken) return error(Errc::kIo, "the store is told to be broken");
        if (full) return error(Errc::kNoSpace, "the store is told to be full");
        return inner_.save(change);
    }

  private:
    MemoryRecordStore inner_;
};

class ManagerTest : public ::testing::Test {
  protected:
    void SetUp() override { start(); }
    void TearDown() override {
        for (const auto& flash : array.flash)
            for (const std::string& v : flash->violations) ADD_FAILURE() << v;
    }
    void start() {
        manager.reset();
        array.boot();
        auto started = Manager::start(*store, array.ports(), options, now);
        ASSERT_TRUE(started.ok()) << started.error().message;
        manager = std::move(started).value();
    }
    std::string state(std::uint32_t slot) {
        for (const SsdInfo& ssd : manager->info(now).ssds)
            if (ssd.slot == slot) return ssd.state;
        return "";
    }
    [[nodiscard]] std::uint32_t version() { return manager->info(now).map_version; }
    /// Until the slot is filled.
    void rebuild(std::uint32_t slot) {
        for (int i = 0; i < 10'000 && state(slot) == "rebuilding"; ++i)
            if (!manager->copy_some(16)) let_pass(1'000);
    }
    [[nodiscard]] std::uint64_t pending() { return manager->info(now).pending_changes; }
    /// Advances the clock by `ms`, and calls tick() after each second of it, as gnstord does.
    void let_pass(std::uint64_t ms) {
        for (; ms > 1'000; ms -= 1'000) manager->tick(now += 1'000);
        manager->tick(now += ms);
    }
    void lose_store() { store = std::make_unique<MemoryRecordStore>(); }
    nvme::ClientId client(const std::string& name) { return manager->register_client(name).value().id; }
    Result<nvme::VolumeRecord> create(nvme::ClientId owner, const std::string& name,
                                      bool any_writer = false) {
        client::CreateVolume request{name, 1 << 20};
        request.any_writer = any_writer;
        return manager->create_volume(owner, request);
    }
    Result<client::OpenedVolume> open(nvme::ClientId who, const std::string& name,
                                      client::OpenMode mode = client::OpenMode::kWrite) {
        return manager->open_volume(who, name, mode, now);
    }
    template <class T>
    static void expect_error(const Result<T>& result, Errc code, const std::string& part) {
        ASSERT_FALSE(result.ok());
        EXPECT_EQ(result.error().code, code) << result.error().message;
        EXPECT_NE(result.error().message.find(part), std::string::npos) << result.error().message;
    }
    void refuse(std::uint32_t slot) {
        array.drives[slot]->fault = [](bool) { return Fault::kRefuse; };
    }
    void heal() {
        for (auto& drive : array.drives) drive->fault = nullptr;
    }

    ModelArray array{4};
    std::unique_ptr<RecordStore> store = std::make_unique<MemoryRecordStore>();
    ManagerOptions options{1000, 0, 7};
    std::uint64_t now = 50'000;
    std::unique_ptr<Manager> manager;
};

}  // namespace gnstor::daemon::test
