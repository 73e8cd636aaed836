// mutate_store.hpp: exercises an opened store whatever its bytes are: used by the damage test and the fuzzer.
#pragma once

#include "scratch.hpp"
#include "ssd/flash/file/file_store.hpp"

#include <cstdlib>

namespace gnstor::ssd::testing {

/// Reads all a store has and programs where it lets us. Only a crash, a hang or a sanitizer's report is a
/// failure.
inline std::uint64_t exercise(FileStore& store) {
    std::uint64_t readable = 0;
    const deengine::FlashGeometry g = store.geometry();
    if (g.pages() > 1u << 16) std::abort();  // the file is small: a superblock cannot have said otherwise
    Page to;
    std::uint32_t crcs[8];
    for (std::uint32_t page = 0; page < g.pages(); ++page) {
        deengine::PageOob oob{};
        if (store.read_page(page, 0, 8, to.data(), crcs, oob) == deengine::FlashStatus::kOk) ++readable;
    }
    readable += store.load().size();
    for (std::uint32_t unit = 0; unit < g.units; ++unit) {
        for (std::uint32_t i = 0; i < g.pages_per_unit; ++i) {
            deengine::PageOob oob = oob_of(1, i, i + 1);
            if (store.program(unit * g.pages_per_unit + i, to.data(), oob) == deengine::FlashStatus::kOk)
                break;
        }
    }
    if (store.erase(0) != deengine::FlashStatus::kOk) std::abort();
    const std::byte blob[3] = {};
    if (store.capacity() >= 3 && !store.store(blob)) std::abort();
    return readable;
}

}  // namespace gnstor::ssd::testing
