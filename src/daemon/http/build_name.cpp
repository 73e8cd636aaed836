// build_name.cpp: the build generates the name itself (build_name.cmake).
#include "daemon/http/build_name.hpp"

namespace gnstor::daemon {

extern const std::string_view kBuildName;

std::string_view build_name() {
    return kBuildName;
}

bool same_build(std::string_view one, std::string_view other) {
    const std::size_t a = one.find('+'), b = other.find('+');
    if (a != std::string_view::npos && b != std::string_view::npos) return one == other;
    return one.substr(0, a) == other.substr(0, b);
}

}  // namespace gnstor::daemon
