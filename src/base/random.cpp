// random.cpp: see random.hpp.
#include "base/random.hpp"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <random>

namespace gnstor {

void fill_random(std::span<std::byte> out) {
    while (!out.empty()) {
        const ssize_t got = ::getrandom(out.data(), out.size(), 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        out = out.subspan(static_cast<std::size_t>(got));
    }
    if (out.empty()) return;
    // This kernel has no getrandom: the library reads the same source in another way, or throws, because
    // predictable numbers in its place would be worse than none.
    std::random_device device;
    std::ranges::generate(out, [&] { return static_cast<std::byte>(device()); });
}

std::uint64_t RandomSource::next() {
    if (seeded_) return seeded_->next();
    std::uint64_t value = 0;
    fill_random(std::as_writable_bytes(std::span(&value, 1)));
    return value;
}

}  // namespace gnstor
