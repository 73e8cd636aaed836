// build_name.hpp: name of this build, by which processes of an array compare their programs. Any thread.
#pragma once

#include <string_view>

namespace gnstor::daemon {

/// Semantic version, with the commit as build metadata (semver.org 2.0.0, 10): "0.1.0+9de1aaa5c3d1", or
/// "0.1.0+9de1aaa5c3d1.dirty.5f0c7a21" if sources were changed; "0.1.0" if built without git. Static storage.
[[nodiscard]] std::string_view build_name();

/// Whether two names may denote the same program: equal, or of equal version if one lacks build metadata.
[[nodiscard]] bool same_build(std::string_view one, std::string_view other);

}  // namespace gnstor::daemon
