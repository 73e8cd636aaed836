// scratch.hpp: a folder that goes away with the test, the seed of this run, and pages with known contents.
#pragma once

#include <gnstor/base/hash.hpp>

#include "deengine/flash.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

namespace gnstor::ssd::testing {

class Scratch {
  public:
    enum class On { kAny, kDisk };
    /// On memory where the machine has it as a file system, unless a disk's is asked for: what most of these
    /// tests prove does not need a disk's patience.
    explicit Scratch(On on = On::kAny) {
        const std::filesystem::path memory = "/dev/shm";
        std::error_code ignored;
        const bool roomy =
            on == On::kAny && std::filesystem::space(memory, ignored).available > (512u << 20) && !ignored;
        std::string name =
            ((roomy ? memory : std::filesystem::temp_directory_path()) / "gnstor-ssd-XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr) std::abort();
        path_ = name;
    }
    ~Scratch() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    [[nodiscard]] std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

  private:
    std::filesystem::path path_;
};

/// Where O_DIRECT works: on memory as well since Linux 6.6, without a disk's patience.
inline Scratch::On direct_place() {
    static const bool memory = [] {
        const Scratch scratch;
        const int fd = ::open((scratch / "probe").c_str(), O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
        if (fd >= 0) ::close(fd);
        return fd >= 0;
    }();
    return memory ? Scratch::On::kAny : Scratch::On::kDisk;
}

/// GN_SEED replays a run; else a fixed seed, so that a gate is the same every day.
inline std::uint64_t seed_or(std::uint64_t fixed) {
    const char* given = std::getenv("GN_SEED");
    return given != nullptr ? std::strtoull(given, nullptr, 0) : fixed;
}

using Page = std::array<std::byte, nvme::kBlockBytes>;

/// Bytes that depend on every part of `seed`.
inline void fill_page(std::byte* to, std::uint64_t seed) {
    SplitMix64 random(seed);
    for (std::size_t i = 0; i < nvme::kBlockBytes; i += 8) {
        const std::uint64_t v = random.next();
        std::memcpy(to + i, &v, 8);
    }
}
inline Page page_of(std::uint64_t seed) {
    Page p;
    fill_page(p.data(), seed);
    return p;
}

inline deengine::PageOob oob_of(std::uint16_t vid, std::uint32_t vba, std::uint64_t sequence,
                                deengine::PageKind kind = deengine::PageKind::kData) {
    deengine::PageOob o{};
    o.vid = vid;
    o.vba = vba;
    o.kind = kind;
    o.version = 2;
    o.sequence = sequence;
    o.epoch = 1;
    return o;
}

}  // namespace gnstor::ssd::testing
