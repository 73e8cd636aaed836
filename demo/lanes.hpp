// lanes.hpp: the demo's jobs on the chosen lanes. One implementation (lanes.inl), compiled once for CPU and
// once for GPU lanes.
#pragma once

#include <gnstor/client/client.hpp>
#include <gnstor/simt/device_memory.hpp>

#include "dissect.hpp"
#include "jobs.hpp"

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace gnstor::demo {

[[nodiscard]] inline double seconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

struct StoreOutcome {
    double seconds = 0;
    Totals totals{};
    std::vector<std::uint32_t> latency_ns;
};

struct GrepOutcome {
    double seconds = 0;
    Totals totals{};
    std::vector<std::uint32_t> latency_ns;
    std::vector<std::uint64_t> matches;  ///< sorted
    std::vector<std::uint32_t> crcs;
};

struct GrepRequest {
    Pattern pattern;
    std::uint64_t input_bytes;
    std::uint64_t seed;  ///< of the order in which pieces are read
};

/// Host thread. Which lanes they are is said by who made it.
class Lanes {
  public:
    virtual ~Lanes() = default;
    [[nodiscard]] virtual std::string describe() const = 0;
    /// How many channels a client should have.
    [[nodiscard]] virtual std::uint32_t channels() const = 0;
    /// Writes blocks first .. first + blocks - 1 of registered memory to the volume's same blocks.
    virtual Result<StoreOutcome> store(client::Client& client, const client::Volume& volume,
                                       const client::Buffer& source, std::uint32_t first,
                                       std::uint32_t blocks) = 0;
    virtual Result<GrepOutcome> grep(client::Client& client, const client::Volume& volume,
                                     const GrepRequest& request) = 0;
    virtual Result<ReadTrace> trace(client::Client& client, const client::Volume& volume,
                                    nvme::BlockAddress block) = 0;
    /// The same job on the same lanes with the file itself: pread, on GPU lanes then cudaMemcpy. Order:
    /// ascending.
    virtual Result<GrepOutcome> grep_file(const std::filesystem::path& file, const GrepRequest& request) = 0;
};

std::unique_ptr<Lanes> make_cpu_lanes();
/// Null in a build without CUDA.
std::unique_ptr<Lanes> make_gpu_lanes();

}  // namespace gnstor::demo
