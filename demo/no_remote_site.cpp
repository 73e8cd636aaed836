// no_remote_site.cpp: what a build without gnstord's client says of arrays that others serve.
#include "site.hpp"

namespace gnstor::demo {

Result<std::unique_ptr<Site>> make_remote_site(const Options&) {
    return error(Errc::kUnsupported,
                 "this build cannot use an array of other processes (--remote): it was built without "
                 "gnstord; install cpp-httplib and SQLite and build with GN_DAEMON=ON");
}

}  // namespace gnstor::demo
