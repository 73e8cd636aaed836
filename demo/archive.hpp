// archive.hpp: the demo's input: one archive of real files, and which file lies at which offset of it. Host,
// one thread.
#pragma once

#include <gnstor/base/result.hpp>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace gnstor::demo {

/// A file inside the archive: its contents are bytes [offset, offset + bytes).
struct Member {
    std::uint64_t offset;
    std::uint64_t bytes;
    std::string name;
};

struct Archive {
    std::filesystem::path path;
    std::uint64_t bytes;
    std::vector<Member> members;  ///< in order of offset

    /// The member that holds `offset`, or null (headers and padding belong to none).
    [[nodiscard]] const Member* member_at(std::uint64_t offset) const;
};

/// A regular file is taken as it is, up to `bytes_max`. Of a folder, a tar archive of its regular files in
/// order of path is made under `work`, by the system's tar, until the next file would exceed `bytes_max`.
Result<Archive> make_archive(const std::filesystem::path& input, const std::filesystem::path& work,
                             std::uint64_t bytes_max);

}  // namespace gnstor::demo
