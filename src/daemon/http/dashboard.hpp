// dashboard.hpp: the files of the dashboard, a page that shows the state of the array in a browser.
//
// The files are in dashboard/ and built in. They hold nothing of the array: the page asks the operations of
// openapi.json for it, with the token that the user types in, and can change nothing, because a browser adds
// an Origin to any request of a page but GET and HEAD, and operations refuse those (access.hpp). All text of the
// API is put into the page as text, and the headers let a browser run no script but those of dashboard/.
// Pure; any thread.
#pragma once

#include "daemon/http/http_service.hpp"

#include <optional>
#include <span>
#include <string_view>

namespace gnstor::daemon {

struct DashboardFile {
    std::string_view path, content_type, text;
};
/// The page first.
[[nodiscard]] std::span<const DashboardFile> dashboard_files();

/// The response to a request for a file of the dashboard, or for a path that leads to it ("/"); nothing for
/// any other path.
[[nodiscard]] std::optional<Response> dashboard_response(const Request& request);

}  // namespace gnstor::daemon
