// shared_file.hpp: files in memory without a name (memfd), to be mapped by several processes. Internal to
// simt/.
//
// Sealed against shrinking: a process that maps one never loses its pages.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/base/units.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

namespace gnstor::simt {

/// Creates an empty file. The caller closes it.
inline Result<int> make_shared_file() {
    const int file = ::memfd_create("gnstor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0)
        return error(Errc::kNoSpace, "cannot create a file for shared memory: {}", std::strerror(errno));
    if (::fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK) == 0) return file;
    const int why = errno;
    ::close(file);
    return error(Errc::kUnsupported, "cannot seal the file of shared memory: {}", std::strerror(why));
}

/// Extends the file to `bytes` with zeroed pages.
inline Result<void> grow_shared_file(int file, std::size_t bytes) {
    if (::ftruncate(file, static_cast<off_t>(bytes)) == 0) return {};
    return error(Errc::kNoSpace, "cannot allocate {} of shared memory: {}", format_bytes(bytes),
                 std::strerror(errno));
}

}  // namespace gnstor::simt
