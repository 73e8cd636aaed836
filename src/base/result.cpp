#include <gnstor/base/result.hpp>

#include <cstdio>

namespace gnstor {

void die_on_unchecked_result(const Error& error) noexcept {
    std::fprintf(stderr, "gnstor: a Result was used without being checked: %s\n", error.message.c_str());
    std::abort();
}

}  // namespace gnstor
