// no_remote_site.cpp: what a build without gnstord's client says of arrays that others serve.
#include "site.hpp"

namespace gnstor::demo {

Result<std::unique_ptr<Site>> make_remote_site(const Options&) {
    return error(Errc::kUnsupported,
                 "this build has no way to an array of other processes (--remote): it was made without "
                 "gnstord, which needs cpp-httplib and SQLite (GN_DAEMON=ON)");
}

}  // namespace gnstor::demo
