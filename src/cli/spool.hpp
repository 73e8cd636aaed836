// spool.hpp: reads a byte stream of unknown length to its end, so that its length is known and it can be read
// again.
//
// Up to `memory_bytes` stay in memory; a longer stream goes to an unlinked temporary file in a folder of the
// caller's. The kernel frees that file when this object or the process ends, also after kill -9. One thread.
#pragma once

#include <gnstor/base/result.hpp>

#include <cstdint>
#include <filesystem>
#include <istream>
#include <memory>
#include <string>

namespace gnstor::cli {

inline constexpr std::uint64_t kSpoolMemoryBytes = 64ull << 20;

class Spool {
  public:
    /// Reads `from` to its end. kNoSpace with message `too_long` if it has more than `bytes_max` bytes.
    static Result<std::unique_ptr<Spool>> read(std::istream& from, const std::filesystem::path& folder,
                                               std::uint64_t bytes_max, const std::string& too_long,
                                               std::uint64_t memory_bytes = kSpoolMemoryBytes);
    virtual ~Spool() = default;
    /// The bytes that were read, from the beginning.
    virtual std::istream& stream() = 0;
    [[nodiscard]] virtual std::uint64_t bytes() const = 0;
};

}  // namespace gnstor::cli
