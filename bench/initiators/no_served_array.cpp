// no_served_array.cpp: what a build without gnstord's client says of arrays that others serve.
#include "bench/initiators/served_array.hpp"

namespace gnstor::bench {

Result<std::unique_ptr<ServedArray>> open_served_array(const ServedArrayOptions&) {
    return error(
        Errc::kUnsupported,
        "this build has no way to an array of other processes (--array): it was made without gnstord, "
        "which needs cpp-httplib and SQLite (GN_DAEMON=ON)");
}

}  // namespace gnstor::bench
