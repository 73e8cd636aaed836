// polled_queues.hpp: a CPU thread's own way to the SSDs: a queue pair to each of them, polled, with no atomic
// read-modify-write on the way. The strongest CPU initiator we know to write over this NIC. Host.
//
// HostClient is one client's registration, opening of a volume and association with every SSD. PolledQueues
// is one thread's queue pairs of such a client: they share one receive completion queue (one ring to poll),
// payload up to 4 KiB travels by reference with the capsule, bells are rung once a batch by flush().
//
// Why not the CPU lanes of gnor: a channel is shared by lanes, so slots, credits, entries and the poll lock
// cost an atomic each even for a lane that is alone; a thread that owns its queues needs none.
//
// Invariants
//   * at most `entries` commands of a queue pair are unanswered: there is a receive for each answer;
//   * a capsule is written again only after the send completion that passes its entry;
//   * a slot of `commands_` belongs to one request until all its replicas have answered.
// One thread at a time uses a PolledQueues.
#pragma once

#include <gnstor/client/control_plane.hpp>

#include "bench/initiators/port.hpp"
#include "nvmf/host/host.hpp"

#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace gnstor::bench {

class HostClient {
  public:
    /// Registers `client_name`, creates and opens `volume` for writing, associates with every SSD. `fua`: on
    /// every command of its queues.
    static Result<std::unique_ptr<HostClient>> open(client::ControlPlane& control, rdma::Nic& nic,
                                                    const std::string& client_name,
                                                    const client::CreateVolume& volume,
                                                    std::uint32_t queues_max, bool fua);
    /// Releases the volume. Queues must be gone.
    ~HostClient();
    HostClient(const HostClient&) = delete;
    HostClient& operator=(const HostClient&) = delete;

    [[nodiscard]] const nvme::VolumeRecord& record() const { return opened_.record; }
    [[nodiscard]] const placement::ArrayMap& map() const { return view_.map; }

  private:
    friend class PolledQueues;
    HostClient(client::ControlPlane& control, rdma::Nic& nic) : control_(control), nic_(nic) {}

    client::ControlPlane& control_;
    rdma::Nic& nic_;
    client::ClientIdentity identity_;
    client::ArrayView view_;
    client::OpenedVolume opened_{};
    bool open_ = false;
    bool fua_ = false;
    std::vector<std::unique_ptr<nvmf::HostController>> ssds_;
    std::uint16_t next_queue_ = 1;
    /// One sequence counter an opening (docs/array.md, rule 6). Relaxed: only its numbers count.
    alignas(64) std::atomic<std::uint64_t> sequence_{0};
};

class PolledQueues final : public Port {
  public:
    /// Control path; not while another thread makes queues of the same client. `buffer_keys`: of the
    /// registered memory that all requests' buffers lie in.
    static Result<std::unique_ptr<PolledQueues>> open(HostClient& client, std::uint32_t entries,
                                                      rdma::MemoryKeys buffer_keys);
    ~PolledQueues() override;

    [[nodiscard]] bool post(const Request& request) override;
    void flush() override;
    std::uint32_t poll(std::span<Answer> answers) override;
    [[nodiscard]] std::uint64_t commands() const override { return sent_; }

  private:
    struct Queue;
    struct Memory;
    /// A request whose replicas have not all answered.
    struct Pending {
        std::uint32_t tag;
        nvme::Status worst;
        std::uint8_t left;
        std::uint8_t slot[placement::kMaxReplicas];
    };

    PolledQueues(HostClient& client, std::uint32_t entries, rdma::MemoryKeys keys);
    Result<void> create();
    Result<void> connect(std::uint32_t ssd);
    [[nodiscard]] bool has_room(Queue& queue);
    void send(Queue& queue, const nvme::Command& command, const std::byte* payload,
              std::uint32_t payload_bytes, std::uint32_t payload_lkey);
    void ring(Queue& queue);
    void collect();

    HostClient& client_;
    const std::uint32_t entries_;
    const rdma::MemoryKeys buffer_keys_;
    std::unique_ptr<Memory> memory_;
    std::vector<Queue> queues_;  // one an SSD, by slot
    std::vector<Pending> pending_;
    std::vector<std::uint16_t> free_;
    std::vector<nvme::Completion> arrived_;
    std::size_t next_arrived_ = 0;
    std::uint64_t sent_ = 0;
    bool broken_ = false;
};

}  // namespace gnstor::bench
