// backbones.hpp: every kind of flash a drive may stand on, made and opened again the same way, for tests that
// hold for all of them.
#pragma once

#include "scratch.hpp"
#include "ssd/flash/direct/direct_store.hpp"
#include "ssd/flash/fault/fault_flash.hpp"
#include "ssd/flash/file/file_store.hpp"
#include "ssd/flash/memory/memory_flash.hpp"
#include "ssd/flash/record_copies.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>

namespace gnstor::ssd::testing {

enum class Kind { kMemory, kTmpfs, kMapped, kRing, kPlain, kFaulty, kFaultyRing };

inline std::string name_of(Kind kind) {
    constexpr const char* kNames[] = {"Memory",      "MappedTmpfs", "MappedDisk",      "DirectRing",
                                      "DirectPlain", "Faulty",      "FaultyDirectRing"};
    return kNames[static_cast<int>(kind)];
}
inline bool is_direct(Kind kind) {
    return kind == Kind::kRing || kind == Kind::kPlain || kind == Kind::kFaultyRing;
}
inline bool has_ring() {
#if defined(GN_TEST_LIBURING)
    return true;
#else
    return false;
#endif
}

/// One store of a kind, and its flash as a whole.
class Backbone {
  public:
    Backbone(Kind kind, NewStore what) : kind_(kind), scratch_(on(kind)), what_(std::move(what)) {
        if (kind_ == Kind::kMemory || kind_ == Kind::kFaulty) {
            store_ = MemoryStore::create(what_.geometry, {}).value();
        } else {
            over(StoreFile::create(path(), what_).value());
        }
        begin(1);
    }
    /// Closed as by the end of its process, and opened again. Not memory.
    void reopen(std::uint32_t parts = 1) {
        flash_.clear();
        store_.reset();
        over(StoreFile::open(path()).value());
        begin(parts);
    }
    void divide(std::uint32_t parts) {
        flash_.clear();
        begin(parts);
    }
    [[nodiscard]] bool keeps() const { return kind_ != Kind::kMemory && kind_ != Kind::kFaulty; }
    [[nodiscard]] deengine::Flash& flash(std::size_t part = 0) { return *flash_[part]; }
    [[nodiscard]] Store& store() { return *store_; }
    [[nodiscard]] std::filesystem::path path() const { return scratch_ / "s"; }
    /// What the checksums of its records begin with.
    [[nodiscard]] DriveSeed drive_seed() const {
        Superblock s{};
        if (keeps()) std::ifstream(path(), std::ios::binary).read(reinterpret_cast<char*>(&s), sizeof s);
        return seed_of(s);
    }

  private:
    static Scratch::On on(Kind kind) {
        return kind == Kind::kMapped || is_direct(kind) ? Scratch::On::kDisk : Scratch::On::kAny;
    }
    void over(std::unique_ptr<StoreFile> file) {
        if (!is_direct(kind_)) {
            store_ = FileStore::over(std::move(file)).value();
            return;
        }
        const bool ring = kind_ != Kind::kPlain && has_ring();
        // Few staging buffers, so that programs have to wait for them.
        store_ = DirectStore::over(std::move(file), {.queue = ring ? IoQueueKind::kRing : IoQueueKind::kPlain,
                                                     .staged_pages = 6})
                     .value();
    }
    void begin(std::uint32_t parts) {
        flash_ = store_->parts(parts).value();
        if (kind_ != Kind::kFaulty && kind_ != Kind::kFaultyRing) return;
        for (auto& part : flash_) part = std::make_unique<FaultFlash>(std::move(part), FaultPlan{});
    }

    Kind kind_;
    Scratch scratch_;
    NewStore what_;
    std::unique_ptr<Store> store_;
    FlashParts flash_;
};

inline deengine::FlashStatus program(deengine::Flash& flash, std::uint32_t page, std::uint64_t seed) {
    const Page data = page_of(seed);
    deengine::PageOob oob = oob_of(1, page, seed);
    return flash.program(page, data.data(), oob);
}

}  // namespace gnstor::ssd::testing
