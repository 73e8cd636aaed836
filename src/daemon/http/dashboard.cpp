#include "daemon/http/dashboard.hpp"

#include "daemon/http/error_response.hpp"

#include <array>
#include <string>
#include <utility>

namespace gnstor::daemon {

// The files of dashboard/, converted to source files by the build.
extern const std::string_view kDashboardHtml, kDashboardCss, kDashboardMainJs, kDashboardRequestsJs,
    kDashboardRatesJs, kDashboardSectionsJs, kDashboardChartJs, kDashboardElementsJs, kDashboardFormatJs;

namespace {

constexpr std::string_view kHtml = "text/html; charset=utf-8", kCss = "text/css; charset=utf-8",
                           kJs = "text/javascript; charset=utf-8";

/// Paths that lead to the page. Relative, as all links of the page: a proxy may serve it below another path.
struct Redirect {
    std::string_view path, location;
};
constexpr Redirect kRedirects[] = {{"/", "dashboard"}, {"/dashboard/", "../dashboard"}};

Response with_headers(int status, std::string_view content_type, std::string_view body) {
    Response response{status, std::string(content_type), std::string(body)};
    response.headers = {
        {"Content-Security-Policy",
         "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
         "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
        {"X-Content-Type-Options", "nosniff"},
        {"X-Frame-Options", "DENY"},
        {"Referrer-Policy", "no-referrer"},
        {"Cross-Origin-Opener-Policy", "same-origin"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {"Cache-Control", "no-cache"}};
    return response;
}

}  // namespace

std::span<const DashboardFile> dashboard_files() {
    // On first use: the texts of other source files may be initialized after this one.
    static const std::array kFiles{DashboardFile{"/dashboard", kHtml, kDashboardHtml},
                                   DashboardFile{"/dashboard/dashboard.css", kCss, kDashboardCss},
                                   DashboardFile{"/dashboard/main.js", kJs, kDashboardMainJs},
                                   DashboardFile{"/dashboard/requests.js", kJs, kDashboardRequestsJs},
                                   DashboardFile{"/dashboard/rates.js", kJs, kDashboardRatesJs},
                                   DashboardFile{"/dashboard/sections.js", kJs, kDashboardSectionsJs},
                                   DashboardFile{"/dashboard/chart.js", kJs, kDashboardChartJs},
                                   DashboardFile{"/dashboard/elements.js", kJs, kDashboardElementsJs},
                                   DashboardFile{"/dashboard/format.js", kJs, kDashboardFormatJs}};
    return kFiles;
}

std::optional<Response> dashboard_response(const Request& request) {
    const std::string_view path = std::string_view(request.target).substr(0, request.target.find('?'));
    std::optional<Response> response;
    for (const DashboardFile& file : dashboard_files())
        if (path == file.path) response = with_headers(200, file.content_type, file.text);
    for (const Redirect& redirect : kRedirects)
        if (path == redirect.path) {
            response = with_headers(302, "text/plain; charset=utf-8", "the dashboard is at /dashboard\n");
            response->headers.emplace_back("Location", redirect.location);
        }
    if (!response || request.method == "GET" || request.method == "HEAD") return response;
    Response refused = error_response(405, "method_not_allowed", "this resource allows only GET");
    refused.headers = std::move(response->headers);
    refused.allow = "GET";
    return refused;
}

}  // namespace gnstor::daemon
