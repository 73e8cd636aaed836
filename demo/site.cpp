// site.cpp: an array in the demo's own process.
#include "site.hpp"

#include <gnstor/embedded_array.hpp>

#include "ssd/tools/store_tool.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

namespace gnstor::demo {
namespace {

using Clock = std::chrono::steady_clock;

class EmbeddedSite final : public Site {
  public:
    explicit EmbeddedSite(bool in_files) : in_files_(in_files) {}
    Result<void> open(const EmbeddedArrayOptions& options) {
        GN_ASSIGN(array_, EmbeddedArray::open(options));
        return {};
    }

    client::Array& array() override { return *array_; }
    [[nodiscard]] bool alone() const override { return true; }
    Result<bool> suspend_daemon(std::string&) override {
        array_->suspend_daemon();
        suspended_at_ = Clock::now();
        return true;
    }
    Result<double> resume_daemon() override {
        if (!array_->daemon_suspended()) return error(Errc::kState, "the daemon was not suspended");
        array_->resume_daemon();
        return std::chrono::duration<double>(Clock::now() - suspended_at_).count();
    }
    [[nodiscard]] Hardware hardware() const override {
        Hardware h{"threads", 0};
        for (const EngineThread& thread : array_->engine_threads()) {
            h.who += " " + thread.name;
            h.cpu_seconds += static_cast<double>(thread.cpu_time_ns) / 1e9;
        }
        return h;
    }
    [[nodiscard]] std::string emulated() const override {
        const EmbeddedArrayOptions& o = array_->options();
        return fmt::format("NIC (software, loop wire{}), {} SSDs ({})", o.strict_nic ? ", strict" : "",
                           o.ssds, in_files_ ? "mapped files" : "memory");
    }
    [[nodiscard]] std::string not_tested() const override {
        return "ConnectX and real SSDs; another host; the network";
    }
    Result<std::string> flip_one_byte(std::uint32_t slot, nvme::VolumeId volume,
                                      nvme::BlockAddress block) override {
        const EmbeddedArrayOptions options = array_->options();
        array_.reset();
        GN_ASSIGN(
            const ssd::CorruptedByte flipped,
            ssd::corrupt_block(options.directory / fmt::format("ssd-{}.store", slot), volume, block, 1000));
        GN_TRY(open(options));
        return fmt::format(
            "ssd-{}.store: byte {} was {:02x}h and is {:02x}h now; it belongs to block {} of the volume",
            slot, flipped.file_offset, flipped.before, flipped.after, block);
    }

  private:
    const bool in_files_;
    std::unique_ptr<EmbeddedArray> array_;
    Clock::time_point suspended_at_;
};

}  // namespace

Result<std::string> Site::flip_one_byte(std::uint32_t, nvme::VolumeId, nvme::BlockAddress) {
    return error(Errc::kUnsupported,
                 "the demo does not damage the stores of an array that it has not started");
}

std::uint64_t capacity_for(const Archive& archive, std::uint32_t ssds) {
    // Every byte lies on two SSDs; chance makes shares uneven, so leave room.
    constexpr std::uint64_t kGrain = 64u << 20;
    return (archive.bytes * kReplicas / ssds * 3 / 2 / kGrain + 2) * kGrain;
}

Result<std::unique_ptr<Site>> make_embedded_site(const Options& options, const std::filesystem::path& work,
                                                 const Archive& archive, bool gpu) {
    EmbeddedArrayOptions array;
    array.ssds = options.ssds;
    array.ssd_capacity_bytes = capacity_for(archive, options.ssds);
    array.engine_threads = options.engine_threads != 0
                               ? options.engine_threads
                               : std::max(1u, std::thread::hardware_concurrency() / 2);
    array.strict_nic = options.strict;
    array.seed = options.seed;
    array.reads_for_device = gpu;
    array.grant_ms = 600'000;  // the daemon is suspended for as long as a whole search takes
    const bool in_files = options.corrupt || options.kill;
    if (in_files)
        array.directory = work / "array";  // a byte can be flipped in a file, and it outlives a process
    auto site = std::make_unique<EmbeddedSite>(in_files);
    GN_TRY(site->open(array));
    return std::unique_ptr<Site>(std::move(site));
}

}  // namespace gnstor::demo
