// store_check.hpp: reads an entire store and reports damage, byte by byte and block by block.
//
// Three independent checks: the head (boot record, metadata copies); the medium (every record and every
// sector against its checksum, units against the rules of flash); and the firmware (mounted on a view, which
// writes nothing; then every block's page is read and its record must name the block). Damage is what a
// reader would notice, or acknowledged data that is missing. A note is what a power cut or a kill leaves
// behind and the firmware handles. Host code, one thread.
#pragma once

#include <gnstor/base/result.hpp>

#include "deengine/front/engine.hpp"
#include "ssd/flash/file/store_view.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace gnstor::ssd {

enum class Severity : std::uint8_t { kNote, kDamage };

struct StoreFinding {
    Severity severity;
    std::uint64_t offset;  ///< byte in the store where the problem begins
    std::string what;
};

struct StoreCheck {
    std::vector<StoreFinding> findings;  ///< at most kMaxFindings; notes are dropped before damage
    std::uint64_t damages = 0, notes = 0;
    std::uint64_t bytes_read = 0;
    std::uint64_t records = 0;  ///< not erased
    std::uint64_t data_pages = 0, system_pages = 0, lost_pages = 0;
    std::uint64_t damaged_records = 0, damaged_pages = 0;
    std::uint64_t damaged_record_copies = 0;  ///< the other copy is whole
    std::uint64_t blocks = 0;                 ///< with data: each was read through the map
    bool mounted = false;                     ///< the firmware accepts the store
    deengine::RecoveryReport recovery{};
    double seconds = 0;
    static constexpr std::size_t kMaxFindings = 1000;
};

/// Called from time to time with the number of bytes read so far.
using CheckProgress = std::function<void(std::uint64_t bytes)>;

/// Bytes that check_store() will read, to scale its progress.
[[nodiscard]] std::uint64_t bytes_to_check(const StoreView& view);
StoreCheck check_store(StoreView& view, const CheckProgress& progress);

}  // namespace gnstor::ssd
