// gateway.hpp: a volume as an ordinary NVMe namespace: block device semantics, 4 KiB logical blocks.
//
// For hosts that do not speak GNStor: they connect, make a file system and mount it, with their own tools. A
// convenience path: a CPU of this process stands in it, on the way of each command and each byte. As an
// ssd::NvmeDevice it is given to an nvmf::Target like a drive (serve.hpp does that).
//
//   * A completed write is as durable as the volume's writes are, on all replicas; FLUSH, and a host that
//   shuts its controller down, flush all SSDs; a volatile write cache is reported exactly where an SSD
//   reports one. Where SSDs with all replicas of an answered write are lost before a flush, flushes fail from
//   then on (loss_watch.hpp). With a record that holds over the gateway's own death, too: where they are lost
//   by the time it is started again, the first flush of each host fails.
//   * The gateway holds the volume's write lease, which its client renews. Once another writer took over, or
//   the lease ran out, it is read only until it is opened anew: writes end with Namespace Write Protected,
//   the log and the hosts are told.
//   * A write that ended so that replicas may differ by it closes the epoch, some seconds later: the gateway
//   begins the next one (Volume::renew), without a moment in which another writer could have the volume.
//   Changes wait meanwhile, until their deadlines.
//   * Every command ends by its deadline, whatever the SSDs do. After one was given up, or a queue pair
//   broke, the gateway reconnects by Client::reclaim(); commands wait meanwhile, until their deadlines.
//
// Threads: open, stop, counters and the destructor from any host thread; the client's channel is the
// gateway's alone, and nobody else calls its reclaim(). One thread of its own carries commands out, another
// looks after lease and connections.
#pragma once

#include <gnstor/base/reactor.hpp>
#include <gnstor/base/result.hpp>
#include <gnstor/client/client.hpp>

#include "gateway/command_engine.hpp"
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
    /// Blocks whose newest version is doubtful on every replica: reads are answered with their older versions
    /// and logged; else with Unrecovered Read Error.
    bool serves_older = false;
    std::uint32_t channel = 0;  ///< of the client
    /// From a command's arrival to an error for its host, at the latest. Linux gives a command up after 30 s.
    std::uint32_t command_timeout_ms = 20'000;
    std::uint32_t under_way_max = 128;  ///< commands at once, of all queues; 1 .. 1024; more wait
    /// Where answers that no flush has settled are noted for the gateway that is started after this one
    /// (loss_record.hpp): a sync at most before the first answer after a time at rest, and after a change of
    /// the map. Empty, or read_only: nowhere, and a successor knows nothing of them.
    std::filesystem::path record;
};

/// What a client of a gateway needs: one channel of CPU lanes, with room for `under_way` large commands.
client::ClientOptions client_options(const std::string& name);

class Gateway final : public ssd::NvmeDevice {
  public:
    /// Opens the volume. `client` has CPU lanes, and outlives the gateway.
    static Result<std::unique_ptr<Gateway>> open(client::Client& client, const GatewayOptions& options);
    /// Queues must have been deleted. What is under way ends; the volume is released. Waits for a reclaim()
    /// that is under way: as long as SSDs that do not answer let it.
    ~Gateway() override;

    Result<ssd::NvmeQueue*> create_queue(std::uint16_t id, std::uint32_t depth, nvme::ClientId client,
                                         ssd::Priority priority, bool privileged,
                                         std::uint16_t controller = 0) override;
    /// Ends what was fetched from it, at once.
    Result<void> delete_queue(ssd::NvmeQueue* queue) override;
    /// As a FLUSH of a host, deadline and all.
    void flush(std::function<void(bool)> done) override;
    /// Of the volume: the same for each opening of it.
    [[nodiscard]] const std::array<std::uint8_t, 16>& uuid() const override;
    [[nodiscard]] const std::string& serial() const override;
    [[nodiscard]] bool is_timed() const override { return false; }
    [[nodiscard]] ssd::Dialect dialect() const override { return ssd::Dialect::kPlain; }

    /// Ends all commands, with Command Aborted, those that come later included: before its target goes, so
    /// that no host is waited for.
    void stop();
    /// To be woken when commands were submitted.
    [[nodiscard]] Reactor& reactor();
    [[nodiscard]] const nvme::VolumeRecord& volume() const;
    /// False from the loss of the lease on.
    [[nodiscard]] bool writable() const;
    /// A copy, taken on the engine's thread.
    [[nodiscard]] GatewayCounters counters() const;
    [[nodiscard]] GatewayState state() const;  ///< the same

  private:
    struct Impl;
    explicit Gateway(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace gnstor::gateway
