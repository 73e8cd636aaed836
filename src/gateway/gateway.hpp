// gateway.hpp: a volume as an ordinary NVMe namespace: block device semantics, 4 KiB logical blocks.
//
// For hosts that do not speak GNStor: they connect, make a file system and mount it with their own tools. For
// convenience, not speed: this process's CPU handles every command and every byte. As an ssd::NvmeDevice it
// is given to an nvmf::Target like a drive (serve.hpp does that).
//
//   * A completed write is as durable as the volume's writes are, on all replicas. FLUSH, and a host's
//     shutdown of its controller, flush all SSDs; the gateway reports a volatile write cache if an SSD does.
//     If SSDs with all replicas of an answered write are lost before a flush, flushes fail from then on
//     (write_loss_tracker.hpp). With a record, this also holds if the gateway itself dies: if they are lost
//     when it is started again, the first flush of each host fails.
//   * The gateway holds the volume's write lease, which its client renews. Once another writer took over, or
//     the lease expired, it is read only until it is opened again: writes end with Namespace Write Protected,
//     and the log and the hosts report it.
//   * A write that ended such that replicas may differ closes the epoch some seconds later: the gateway
//     begins the next one (Volume::renew), and no other writer can take the volume in between. Meanwhile
//     changes wait, at most until their deadlines.
//   * Every command ends by its deadline, whatever the SSDs do. After a command was given up, or a queue pair
//     broke, the gateway reconnects by Client::reclaim(); meanwhile commands wait, at most until their
//     deadlines.
//
// Threads: open, stop, counters and the destructor from any host thread. Only the gateway may use the
// client's channel and call its reclaim(). One thread of its own carries out commands, another maintains
// lease and connections.
#pragma once

#include <gnstor/base/reactor.hpp>
#include <gnstor/base/result.hpp>
#include <gnstor/client/client.hpp>

#include "gateway/command_executor.hpp"
#include "ssd/queues/nvme_device.hpp"

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

namespace gnstor::gateway {

struct GatewayOptions {
    std::string volume;
    bool read_only = false;  ///< opened for reading: no lease, others may write
    /// For blocks whose newest version is doubtful on every replica: true: reads return an older version, and
    /// are logged; false: they end with Unrecovered Read Error.
    bool serves_older = false;
    std::uint32_t channel = 0;  ///< index of the client's channel to use
    /// Longest time from a command's arrival to its answer. Linux gives a command up after 30 s.
    std::uint32_t command_timeout_ms = 20'000;
    std::uint32_t under_way_max = 128;  ///< commands in flight, of all queues; 1 .. 1024; more wait
    /// File that records, for the next gateway, that answers exist which no flush has covered
    /// (loss_record.hpp). It is synced at most before the first answer after an idle time, and after a change
    /// of the map. Empty, or read_only: no record, and a successor knows nothing of such answers.
    std::filesystem::path record;
};

/// Options for a gateway's client: one channel of CPU lanes, with room for `under_way_max` large commands.
client::ClientOptions client_options(const std::string& name);

class Gateway final : public ssd::NvmeDevice {
  public:
    /// Opens the volume. `client` has CPU lanes, and outlives the gateway.
    static Result<std::unique_ptr<Gateway>> open(client::Client& client, const GatewayOptions& options);
    /// All queues must have been deleted. Ends commands in flight and releases the volume. Waits for a
    /// reclaim() in progress, which takes as long as its timeouts for SSDs that do not answer.
    ~Gateway() override;

    Result<ssd::NvmeQueue*> create_queue(std::uint16_t id, std::uint32_t depth, nvme::ClientId client,
                                         ssd::Priority priority, bool privileged,
                                         std::uint16_t controller = 0) override;
    /// Ends all commands fetched from it at once.
    Result<void> delete_queue(ssd::NvmeQueue* queue) override;
    /// As a host's FLUSH, with the same deadline.
    void flush(std::function<void(bool)> done) override;
    /// Identifies the volume: the same at each opening.
    [[nodiscard]] const std::array<std::uint8_t, 16>& uuid() const override;
    [[nodiscard]] const std::string& serial() const override;
    [[nodiscard]] bool is_timed() const override { return false; }
    [[nodiscard]] ssd::Dialect dialect() const override { return ssd::Dialect::kPlain; }

    /// Ends all commands, and every later one, with Command Aborted. Call before the target is destroyed, so
    /// that it need not wait for hosts.
    void stop();
    /// The reactor to wake after commands were submitted.
    [[nodiscard]] Reactor& reactor();
    [[nodiscard]] const nvme::VolumeRecord& volume() const;
    /// False after the lease was lost.
    [[nodiscard]] bool writable() const;
    /// A copy, taken on the executor's thread.
    [[nodiscard]] GatewayCounters counters() const;
    [[nodiscard]] GatewayState state() const;  ///< likewise

  private:
    struct Impl;
    explicit Gateway(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace gnstor::gateway
