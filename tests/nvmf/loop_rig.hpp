// loop_rig.hpp: a node and a host in one process: two NICs on a loop wire, or on two udp wires of loopback
// addresses; drives in memory, a target, host controllers.
#pragma once

#include "held_queue.hpp"
#include "late_windows.hpp"
#include "nvmf/host/host.hpp"
#include "nvmf/protocol/nqn.hpp"
#include "nvmf/target/target.hpp"
#include "rdma/wire/loop/loop_wire.hpp"
#include "rdma/wire/loop/soft_nic.hpp"
#include "rdma/wire/shm/shm_nic.hpp"
#include "rdma/wire/shm/shm_server.hpp"
#include "rdma/wire/udp/udp_wire.hpp"
#include "ssd/drive/drive.hpp"
#include "support/loopback.hpp"

#include <gnstor/simt/time.hpp>

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace gnstor::nvmf {

inline constexpr nvme::VolumeId kVolume = 7;
inline constexpr nvme::ClientId kWriter = 9;
inline constexpr std::uint64_t kCapacityBlocks = 4096;
inline constexpr std::uint64_t kTerm = 3;
inline constexpr std::uint64_t kSecond = 1'000'000'000;

/// Waits for a condition, with a deadline and without a sleep.
template <class Condition>
bool eventually(Condition condition, std::uint64_t seconds = 100) {
    const std::uint64_t until = simt::now_ns() + seconds * kSecond;
    while (!condition()) {
        if (simt::now_ns() > until) return false;
        std::this_thread::yield();
    }
    return true;
}

inline nvme::VolumeRecord sample_record(nvme::VolumeId volume = kVolume, const char* name = "sample",
                                        nvme::ClientId owner = kWriter) {
    nvme::VolumeRecord r{};
    r.record_version = nvme::kVolumeRecordVersion;
    r.epoch = 1;
    r.birth_epoch = 1;
    r.geometry.hash_factor = 0x1234;
    r.geometry.capacity_blocks = kCapacityBlocks;
    r.geometry.volume = volume;
    r.geometry.chunk_shift = 4;
    r.geometry.replicas = 1;
    r.owner = owner;
    r.writer = owner;
    r.revision = 1;
    r.slot_count = 1;
    std::strncpy(r.name, name, nvme::kMaxVolumeName);
    std::strncpy(r.owner_name, "tester", nvme::kMaxVolumeName);
    return r;
}

struct RigOptions {
    bool strict = true;
    bool one_reactor = false;  ///< NICs and drive on one thread, or each on its own
    std::uint64_t seed = 1;
    bool manual_clock = false;
    std::uint32_t late_windows = 0;                   ///< of the node's NIC: rounds (late_windows.hpp)
    bool udp = false;                                 ///< packets between the two, instead of pointers
    rdma::PeerKind kind = rdma::PeerKind::kSameUser;  ///< what the node's loop wire knows of the host
    bool shm = false;              ///< the host is a client of the node's, over shared memory
    std::uint16_t held_queue = 0;  ///< the id of I/O queues that held() keeps from the drive; 0: none
    TargetOptions target;
};

class LoopRig {
  public:
    explicit LoopRig(RigOptions options = {}) {
        for (const char* name : {"host", "node", "drive"}) {
            reactors_.push_back(Reactor::start(name).value());
            if (options.one_reactor) break;
        }
        Reactor* const host_reactor[] = {reactors_.front().get()};
        Reactor* const node_reactor[] = {reactors_[options.one_reactor ? 0 : 1].get()};
        Reactor& drive_reactor = *reactors_.back();
        const rdma::NicOptions nic{.strict = options.strict, .seed = options.seed, .pollers = 1};
        if (options.udp) {
            service_ = "4420";
            udp_host_ = open_udp(gnstor::test::loopback_address(2), *host_reactor[0]);
            udp_node_ = open_udp(gnstor::test::loopback_address(3), *node_reactor[0]);
            host_nic_ = rdma::open_udp_nic(*udp_host_, nic).value();
            node_nic_ = rdma::open_udp_nic(*udp_node_, nic).value();
        } else {
            rdma::NicOptions node = nic;
            node.stage_windows = rdma::late_windows(options.late_windows);
            node_nic_ = rdma::SoftNic::open(wire_, "node", node, node_reactor).value();
            if (options.shm) {
                const auto path = std::filesystem::temp_directory_path() /
                                  ("gnstor-rig-" + std::to_string(::getpid()) + ".sock");
                shm_server_ =
                    rdma::ShmServer::start(wire_, node_reactor, {.path = path, .node = "node"}).value();
                host_nic_ = rdma::open_shm_nic(path).value();
            } else {
                rdma::NicOptions host = nic;
                host.kind = options.kind;
                host_nic_ = rdma::SoftNic::open(wire_, "host", host, host_reactor).value();
            }
        }
        ssd::DriveOptions drive;
        drive.capacity_bytes = 64u << 20;
        drive_ = ssd::Drive::open(drive, drive_reactor).value();
        held_ = std::make_unique<HeldQueue>(*drive_, options.held_queue);
        ssd::NvmeDevice* const device =
            options.held_queue != 0 ? held_.get() : static_cast<ssd::NvmeDevice*>(drive_.get());
        const SubsystemConfig subsystems[] = {
            {.device = device, .nqn = "", .service = service_, .drive_reactor = &drive_reactor}};
        if (options.manual_clock)
            options.target.now_ns = [this] { return clock_ns.load(); };
        else
            options.target.connect_timeout_ms = 100'000;  // a busy machine is no lost host
        target_ = Target::open(*node_nic_, subsystems, options.target).value();
    }
    ~LoopRig() {
        if (shm_server_ != nullptr) {  // before the target: it ends the client's connections
            EXPECT_EQ(host_nic_->counters().strict_violations, 0u);
            host_nic_.reset();
            shm_server_.reset();
        }
        target_.reset();
        drive_.reset();
        if (host_nic_ != nullptr) {
            EXPECT_EQ(host_nic_->counters().strict_violations, 0u);
        }
        EXPECT_EQ(node_nic_->counters().strict_violations, 0u);
        node_nic_.reset();
        host_nic_.reset();
    }

    [[nodiscard]] HostOptions host(std::string nqn = client_host_nqn(kWriter)) const {
        HostOptions o;
        o.peer_address = node_nic_->address();  // a client over shared memory reaches that one node anyway
        o.service = service_;
        o.subsystem_nqn = ssd_subsystem_nqn(drive_->uuid());
        o.host_nqn = std::move(nqn);
        o.host_id = {1, 2, 3, 4};
        o.keep_alive_ms = 0;  // a busy machine is no lost host; tests of that rule set theirs
        o.timeout_ms = 100'000;
        return o;
    }
    [[nodiscard]] Result<std::unique_ptr<HostController>> connect(const HostOptions& o) const {
        return HostController::connect(*host_nic_, o);
    }
    [[nodiscard]] nvme::MapSet map() const {
        nvme::MapSet m{};
        m.slot = 0;
        m.grant_ms = 0;
        m.map.version = 1;
        m.map.slot_count = 1;
        m.map.slots[0].state = placement::SlotState::kIn;
        m.map.slots[0].weight = 1;
        std::copy(drive_->uuid().begin(), drive_->uuid().end(), m.map.slots[0].ssd_uuid);
        return m;
    }
    /// Makes the drive serve a volume to its owner; leaves no connection behind.
    void make_volume(const nvme::VolumeRecord& record = sample_record()) const {
        auto admin = connect(host(std::string{kAdminHostNqn}));
        ASSERT_TRUE(admin.ok()) << admin.error().message;
        const auto set = (*admin)->map_set(kTerm, map());
        ASSERT_TRUE(set.ok()) << set.error().message;
        const auto added = (*admin)->volume_add(kTerm, record);
        ASSERT_TRUE(added.ok()) << added.error().message;
    }
    [[nodiscard]] SubsystemCounters counters() const { return target_->counters(service_).value(); }

    rdma::Nic& host_nic() { return *host_nic_; }
    rdma::SoftNic& node_nic() { return *node_nic_; }
    Target& target() { return *target_; }
    ssd::Drive& drive() { return *drive_; }
    HeldQueue& held() { return *held_; }
    std::atomic<std::uint64_t> clock_ns{1};

    /// Blocks until the engine thread has gone through its pollers once more: a wait that leaves it the
    /// processor, which yields do not where more threads than processors run. With one_reactor: all of them.
    void round() {
        reactors_.front()->run([] {});
    }

    /// Takes the target away while hosts are connected.
    void close_target() { target_.reset(); }

  private:
    static std::unique_ptr<rdma::UdpWire> open_udp(const std::string& address, Reactor& reactor) {
        constexpr std::uint16_t kTestRocePort = 47912;  // 4791 may belong to a kernel RoCE device
        return rdma::UdpWire::open({.address = address, .port = kTestRocePort}, reactor).value();
    }

    std::vector<std::unique_ptr<Reactor>> reactors_;
    std::string service_ = "ssd-0";
    rdma::LoopWire wire_;
    std::unique_ptr<rdma::UdpWire> udp_host_, udp_node_;
    std::unique_ptr<rdma::ShmServer> shm_server_;
    std::unique_ptr<rdma::Nic> host_nic_;
    std::unique_ptr<rdma::SoftNic> node_nic_;
    std::unique_ptr<ssd::Drive> drive_;
    std::unique_ptr<HeldQueue> held_;
    std::unique_ptr<Target> target_;
};

/// Registered memory of a host.
class Buffer {
  public:
    Buffer(rdma::Nic& nic, std::size_t bytes,
           std::uint32_t access = rdma::kLocalWrite | rdma::kRemoteRead | rdma::kRemoteWrite)
        : nic_(nic),
          bytes_(rdma::NicMemory::map(nic, bytes).value()),
          keys_(nic.register_memory(bytes_.data(), bytes, access).value()),
          size_(bytes) {}
    ~Buffer() { EXPECT_TRUE(nic_.deregister_memory(keys_).ok()); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    std::byte* data() { return bytes_.data(); }
    [[nodiscard]] nvme::SglDescriptor sgl(std::size_t offset, std::uint32_t length) const {
        return nvme::SglDescriptor::keyed(reinterpret_cast<std::uintptr_t>(bytes_.data()) + offset, length,
                                          keys_.rkey);
    }
    void fill(std::uint8_t seed) {
        for (std::size_t i = 0; i < size_; ++i)
            bytes_.data()[i] = static_cast<std::byte>(i * 31 + i / 4096 + seed);
    }

  private:
    rdma::Nic& nic_;
    rdma::NicMemory bytes_;
    rdma::MemoryKeys keys_;
    std::size_t size_;
};

/// One command after the other on an I/O queue.
class IoClient {
  public:
    IoClient(rdma::Nic& nic, HostController& controller, std::uint16_t queue_id, std::uint32_t entries = 16)
        : queue_(controller.open_io_queue(queue_id, entries).value()), buffer(nic, 1u << 20) {}
    nvme::Completion run(nvme::Command command, std::span<const std::byte> in_capsule = {}) {
        command.command_id = next_id_++;
        // An answer may overtake the completion of its own send: the entry is free when that has come.
        const std::uint64_t deadline = simt::now_ns() + 100 * kSecond;
        HostQueue::Posted posted = queue_->post(command, in_capsule);
        while (posted == HostQueue::Posted::kFull && simt::now_ns() < deadline) {
            std::this_thread::yield();
            posted = queue_->post(command, in_capsule);
        }
        EXPECT_EQ(posted, HostQueue::Posted::kYes);
        const auto response = await_response(*queue_, deadline);
        EXPECT_TRUE(response.ok()) << response.error().message;
        if (!response.ok()) return {};
        EXPECT_EQ(response->command_id, command.command_id);
        return *response;
    }
    nvme::Status status(nvme::Command command, std::span<const std::byte> in_capsule = {}) {
        return run(command, in_capsule).result();
    }
    HostQueue& queue() { return *queue_; }

  private:
    std::unique_ptr<HostQueue> queue_;
    std::uint16_t next_id_ = 100;

  public:
    Buffer buffer;  // goes first: the queue pair's windows are closed with its answers
};

inline nvme::IoFields fields(nvme::BlockAddress block, std::uint32_t blocks, std::uint64_t sequence = 0) {
    nvme::IoFields f;
    f.volume = kVolume;
    f.client = kWriter;
    f.block = block;
    f.blocks = blocks;
    f.epoch = 1;
    f.map_version = 1;
    f.sequence = sequence;
    return f;
}
inline nvme::Command io(nvme::IoOpcode opcode, const nvme::IoFields& f, nvme::SglDescriptor data) {
    nvme::Command c = nvme::encode_io(opcode, f);
    c.data = data;
    return c;
}

}  // namespace gnstor::nvmf
