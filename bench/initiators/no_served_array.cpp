// no_served_array.cpp: what a build without gnstord's client says of arrays that others serve.
#include "bench/initiators/served_array.hpp"

namespace gnstor::bench {

Result<std::unique_ptr<ServedArray>> open_served_array(const ServedArrayOptions&) {
    return error(Errc::kUnsupported,
                 "this build cannot use an array that other processes serve (--array): it was built without "
                 "gnstord; install cpp-httplib and SQLite and build with GN_DAEMON=ON");
}

}  // namespace gnstor::bench
