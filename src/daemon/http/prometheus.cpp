#include "daemon/http/prometheus.hpp"

#include <sys/resource.h>

namespace gnstor::daemon {
namespace {

double cpu_seconds() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

}  // namespace

std::string PrometheusText::label(const std::string& text) {
    std::string out;
    for (const char c : text) {
        if (c == '\\' || c == '"') out += '\\';
        if (c == '\n')
            out += "\\n";
        else
            out += c;
    }
    return out;
}

void PrometheusText::of_the_process(const std::string& program, const RequestCounts& counts) {
    family("gnstor_http_requests_total", "counter", "Requests by route, method and status.");
    for (const auto& [key, count] : counts) {
        const auto& [route, method, code] = key;
        sample("gnstor_http_requests_total",
               fmt::format("route=\"{}\",method=\"{}\",code=\"{}\"", label(route), label(method), code),
               count);
    }
    const std::string help = fmt::format("CPU time of {}, user and system.", program);
    one("process_cpu_seconds_total", "counter", help.c_str(), cpu_seconds());
}

}  // namespace gnstor::daemon
