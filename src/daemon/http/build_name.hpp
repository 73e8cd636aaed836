// build_name.hpp: which program this is, as processes of an array tell each other. Any thread.
#pragma once

#include <string_view>

namespace gnstor::daemon {

/// Semantic version, with the commit as its build metadata (semver.org 2.0.0, 10): "0.1.0+9de1aaa5c3d1", or
/// "0.1.0+9de1aaa5c3d1.dirty.5f0c7a21" of changed sources; "0.1.0" where no git told. Of static storage.
[[nodiscard]] std::string_view build_name();

/// Whether two names may be of one program: the same, or of the same version where one does not say more.
[[nodiscard]] bool same_build(std::string_view one, std::string_view other);

}  // namespace gnstor::daemon
