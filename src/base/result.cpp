#include <gnstor/base/result.hpp>

#include <cstdio>

namespace gnstor {

void die_on_unchecked_result(const Error& error) noexcept {
    std::fprintf(
        stderr,
        "gnstor: the value of a failed Result was used without checking the Result for an error: %s\n",
        error.message.c_str());
    std::abort();
}

}  // namespace gnstor
