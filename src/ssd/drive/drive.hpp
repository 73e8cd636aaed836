// drive.hpp: one emulated SSD: NVMe queues in front, deEngine inside, a flash backbone behind.
//
// Threads: open(), create_queue(), delete_queue(), flush() and the destructor from any host thread; commands
// are served on the reactor given to open(). Admin queues serve Identify, features and GNStor's vendor
// commands.
#pragma once

#include <gnstor/base/reactor.hpp>
#include <gnstor/base/result.hpp>

#include "deengine/front/engine.hpp"
#include "ssd/options/drive_options.hpp"
#include "ssd/queues/nvme_device.hpp"

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace gnstor::ssd {

class Drive final : public NvmeDevice {
  public:
    /// Opens the store (and recovers it) or creates it, and starts serving: commands are fetched, checked and
    /// completed on `reactor`. A drive of several service units runs unit i on units[i % size], or all of
    /// them on `reactor` if `units` is empty. The reactors outlive the drive.
    static Result<std::unique_ptr<Drive>> open(const DriveOptions& options, Reactor& reactor,
                                               std::span<Reactor* const> units = {});
    /// Stops serving; queues must have been deleted. A file store keeps everything acknowledged.
    ~Drive() override;

    Result<NvmeQueue*> create_queue(std::uint16_t id, std::uint32_t depth, nvme::ClientId client,
                                    Priority priority, bool privileged,
                                    std::uint16_t controller = 0) override;
    Result<void> delete_queue(NvmeQueue* queue) override;
    void flush(std::function<void(bool)> done) override;

    /// UUID of the store's incarnation: a different one means that the contents were lost. docs/array.md,
    /// rule 10.
    [[nodiscard]] const std::array<std::uint8_t, 16>& uuid() const override;
    [[nodiscard]] const std::array<std::uint8_t, 16>& drive_uuid() const;  ///< of the drive; never changes
    [[nodiscard]] const std::string& serial() const override;
    [[nodiscard]] std::uint64_t capacity_blocks() const;
    /// Data can be read; every change is refused.
    [[nodiscard]] bool write_protected() const;
    /// Whether a timing model delays completions (timing_model.hpp).
    [[nodiscard]] bool is_timed() const override;
    [[nodiscard]] Dialect dialect() const override { return Dialect::kArray; }
    /// A copy, taken on the drive's thread.
    [[nodiscard]] deengine::EngineCounters counters() const;
    [[nodiscard]] const deengine::RecoveryReport& recovery() const;

  private:
    struct Impl;
    explicit Drive(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace gnstor::ssd
