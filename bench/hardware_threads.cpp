// hardware_threads.cpp: helpers are found by their name among the threads of this process.
#include "bench/hardware_threads.hpp"

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace gnstor::bench {
namespace {

constexpr char kHelpers[] = "gn-pages";

/// 0 where the kernel does not say.
std::uint64_t cpu_time_of_helpers() {
    std::uint64_t sum = 0;
    std::error_code failed;
    for (std::filesystem::directory_iterator task("/proc/self/task", failed), end; !failed && task != end;
         task.increment(failed)) {
        std::string name;
        std::getline(std::ifstream(task->path() / "comm"), name);
        std::uint64_t ns = 0;
        if (name == kHelpers && std::ifstream(task->path() / "schedstat") >> ns) sum += ns;
    }
    return sum;
}

}  // namespace

std::vector<EngineThread> hardware_threads(const EmbeddedArray& array) {
    std::vector<EngineThread> threads = array.engine_threads();
    if (const std::uint64_t helpers = cpu_time_of_helpers(); helpers != 0)
        threads.push_back({kHelpers, helpers, helpers});
    return threads;
}

}  // namespace gnstor::bench
