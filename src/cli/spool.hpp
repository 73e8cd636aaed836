// spool.hpp: a byte stream of unknown length, read to its end, so that its length is known and it can be read
// again.
//
// Small ones stay in memory; from there on they lie in a file without a name in a folder of the caller's,
// which is gone with this object, and with the process whatever becomes of it. One thread.
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
    /// Reads `from` to its end. kNoSpace with `too_long` where more than `bytes_max` come.
    static Result<std::unique_ptr<Spool>> read(std::istream& from, const std::filesystem::path& folder,
                                               std::uint64_t bytes_max, const std::string& too_long,
                                               std::uint64_t memory_bytes = kSpoolMemoryBytes);
    virtual ~Spool() = default;
    /// What came, from its beginning.
    virtual std::istream& stream() = 0;
    [[nodiscard]] virtual std::uint64_t bytes() const = 0;
};

}  // namespace gnstor::cli
