// node.cpp: starts engine threads, NIC, drives and target of one storage node.
#include "embedded/node.hpp"

#include <gnstor/base/log.hpp>
#include <gnstor/base/units.hpp>

#include "ssd/drive/backbone.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <thread>

namespace gnstor::embedded {
namespace {

constexpr std::uint32_t kSpinWithCoresUs = 2000;

// Limits for shm clients of a node that also serves peers over udp: up to 3,072 connections of udp peers plus
// 96 x 8 queue pairs assured to shm clients fit into one NIC's 4,093.
constexpr std::uint32_t kShmClients = 96;
rdma::ShmLimits beside_packets() {
    rdma::ShmLimits limits;
    limits.queue_pairs = {.total = 1000, .assured = 8, .most = 512};
    return limits;
}

ssd::Durability durability_of(SsdDurability durability) {
    switch (durability) {
        case SsdDurability::kProcess:
            return ssd::Durability::kProcess;
        case SsdDurability::kPower:
            return ssd::Durability::kPower;
        case SsdDurability::kDefault:
            break;
    }
    return ssd::Durability::kDefault;
}

}  // namespace

Result<std::unique_ptr<Node>> Node::open(const EmbeddedArrayOptions& options, rdma::LoopWire& wire,
                                         const std::string& address) {
    std::unique_ptr<Node> node(new Node(address));
    GN_ASSIGN(node->profile_, load_profile(options.profile));
    GN_TRY(node->start_threads(options));
    rdma::NicOptions nic;
    nic.strict = options.strict_nic;
    nic.seed = options.seed;
    nic.pollers = static_cast<std::uint32_t>(node->nic_reactors_.size());
    nic.link = node->profile_.network;
    GN_ASSIGN(node->nic_, rdma::SoftNic::open(wire, address, nic, node->nic_reactors_));
    GN_TRY(node->open_drives(options));
    GN_TRY(node->open_target());
    return node;
}

Result<std::unique_ptr<Node>> Node::open(const EmbeddedArrayOptions& options, const UdpListen& listen) {
    std::unique_ptr<Node> node(new Node(listen.address));
    GN_ASSIGN(node->profile_, load_profile(options.profile));
    EmbeddedArrayOptions one_nic_thread = options;
    one_nic_thread.nic_threads = 1;  // a udp wire has one poller
    GN_TRY(node->start_threads(one_nic_thread));
    rdma::UdpWireOptions wire;
    wire.address = listen.address;
    GN_ASSIGN(node->udp_, rdma::UdpWire::open(wire, *node->nic_reactors_.front()));
    rdma::NicOptions nic;
    nic.strict = options.strict_nic;
    nic.seed = options.seed;
    GN_ASSIGN(node->nic_, rdma::open_udp_nic(*node->udp_, nic));
    GN_TRY(node->open_drives(options));
    for (const std::string& which : node->left_out_) log_warn("{}", which);
    node->port_ = listen.port;
    GN_TRY(node->open_target(listen.hosts));
    if (!listen.shm.empty()) {
        auto server = rdma::ShmServer::start(node->udp_->inside(), node->nic_reactors_,
                                             {.path = listen.shm,
                                              .node = node->nic_->address(),
                                              .mode = listen.shm_mode,
                                              .clients_max = kShmClients,
                                              .clients_of_user_max = kShmClients * 3 / 4,
                                              .strict = options.strict_nic,
                                              .limits = beside_packets()});
        if (server.ok())
            node->shm_ = std::move(server).value();
        else  // for example, if the folder is on a file system without sockets
            log_warn(
                "processes of this machine can reach the node only over the udp wire, not over shared "
                "memory: {}",
                server.error().message);
    }
    return node;
}

Node::~Node() = default;

Result<void> Node::start_threads(const EmbeddedArrayOptions& options) {
    const std::uint32_t threads = options.engine_threads;
    std::uint32_t nic_threads = options.nic_threads;
    // Measured on 16 cores: passing descriptors between NIC threads and drive threads costs little once there
    // are several of each. Drives can use as many threads as they have service units.
    units_a_drive_ = std::max(1u, options.service_units);
    const std::uint32_t units = options.ssds * units_a_drive_;
    if (nic_threads == 0 && threads > 1)
        nic_threads = std::max({1u, threads / 3, threads > units ? threads - units : 0u});
    if (nic_threads == 0) nic_threads = 1;
    if (nic_threads > threads)
        return error(Errc::kInvalidArgument,
                     "{} NIC threads are more than the {} engine threads; give at most as many NIC threads "
                     "as engine threads",
                     nic_threads, threads);
    // GPU lanes cannot wake a thread, and waking one takes tens of microseconds. With spare cores, threads
    // therefore spin long enough that lanes issuing one command after another find them awake.
    ReactorOptions reactor_options;
    if (std::thread::hardware_concurrency() > threads + 1) reactor_options.spin_us = kSpinWithCoresUs;
    for (std::uint32_t i = 0; i < threads; ++i) {
        const bool for_nic = i < nic_threads;
        const char* const role = threads == nic_threads ? "gn-engine" : for_nic ? "gn-nic" : "gn-ssd";
        GN_ASSIGN(std::unique_ptr<Reactor> reactor,
                  Reactor::start(fmt::format("{}-{}", role, i), reactor_options));
        if (for_nic) nic_reactors_.push_back(reactor.get());
        if (!for_nic || threads == nic_threads) drive_reactors_.push_back(reactor.get());
        reactors_.push_back(std::move(reactor));
    }
    return {};
}

std::size_t Node::first_thread(std::uint32_t drive) const {
    return first_drive_thread(drive, units_a_drive_, drive_reactors_.size());
}

ssd::DriveOptions Node::drive_options(const EmbeddedArrayOptions& options, std::uint32_t index) const {
    ssd::DriveOptions drive;
    drive.capacity_bytes = options.ssd_capacity_bytes;
    drive.memory.bytes_at_opening = options.ssd_memory_at_opening;
    if (!options.directory.empty()) drive.file = options.directory / fmt::format("ssd-{}.store", index);
    drive.service_units = options.service_units;
    drive.scrub_pages_per_second = options.scrub_pages_per_second;
    drive.durability = durability_of(options.durability);
    drive.timing = profile_.drive;
    drive.memory.past_caches.reads = options.reads_for_device;
    if (options.direct_io) drive.backbone = ssd::BackboneKind::kDirect;
    return drive;
}

/// Adds the stores that it creates to `made`, also if it fails.
Result<void> Node::make_stores(const EmbeddedArrayOptions& options,
                               std::vector<std::filesystem::path>& made) const {
    std::vector<ssd::DriveOptions> missing;
    std::uint64_t needed = 0;
    std::error_code failed;
    for (std::uint32_t i = 0; i < options.ssds && !options.directory.empty(); ++i) {
        const ssd::DriveOptions drive = drive_options(options, i);
        if (std::filesystem::symlink_status(drive.file, failed).type() !=
            std::filesystem::file_type::not_found)
            continue;
        GN_ASSIGN(const std::uint64_t room, ssd::room_to_begin(drive));
        needed += room;
        missing.push_back(drive);
    }
    if (missing.empty()) return {};
    const std::filesystem::space_info space = std::filesystem::space(options.directory, failed);
    if (!failed && space.available < needed)
        return error(Errc::kNoSpace,
                     "{} new SSDs of {} in {} need {} at once, but {} are free there; free disk space, or "
                     "create fewer or smaller SSDs (--ssds, --capacity)",
                     missing.size(), format_bytes(options.ssd_capacity_bytes), options.directory.string(),
                     format_bytes(needed), format_bytes(space.available));
    for (const ssd::DriveOptions& drive : missing) {
        if (Result<void> one = ssd::make_store(drive); !one.ok())
            return error(one.error().code, "{}; {} new SSDs need {} at once", one.error().message,
                         missing.size(), format_bytes(needed));
        made.push_back(drive.file);
    }
    return {};
}

Result<void> Node::open_drives(const EmbeddedArrayOptions& options) {
    std::vector<std::filesystem::path> made;
    Result<void> opened = make_stores(options, made);
    if (opened.ok()) opened = serve_drives(options);
    // Removes the stores just created, while their drives still hold the locks. kBusy: another process has
    // opened them meanwhile, so they stay.
    if (!opened.ok() && opened.error().code != Errc::kBusy)
        for (const std::filesystem::path& file : made) {
            std::error_code failed;
            std::filesystem::remove(file, failed);
        }
    return opened;
}

Result<void> Node::serve_drives(const EmbeddedArrayOptions& options) {
    Result<void> refused;
    for (std::uint32_t i = 0; i < options.ssds; ++i) {
        // Assigns the service units of all drives round robin to the threads; a drive's first unit runs on
        // the thread that fetches its commands.
        std::vector<Reactor*> units;
        for (std::size_t u = 0; u < drive_reactors_.size(); ++u)
            units.push_back(drive_reactors_[(first_thread(i) + u) % drive_reactors_.size()]);
        Result<std::unique_ptr<ssd::Drive>> opened =
            ssd::Drive::open(drive_options(options, i), *units.front(), units);
        if (opened.ok()) {
            drives_.push_back(std::move(opened).value());
            numbers_.push_back(i);
            continue;
        }
        if (!options.leave_out_damaged || opened.error().code != Errc::kCorrupt) return opened.error();
        if (left_out_.empty()) refused = opened.error();
        left_out_.push_back(fmt::format("SSD {} is left out, because its store cannot be used: {}", i,
                                        opened.error().message));
    }
    if (drives_.empty()) return refused;
    return {};
}

Result<void> Node::open_target(std::shared_ptr<nvmf::HostRegistry> hosts) {
    std::vector<nvmf::SubsystemConfig> subsystems;
    for (std::uint32_t i = 0; i < ssd_count(); ++i) {
        nvmf::SubsystemConfig config;
        config.device = drives_[i].get();
        if (port_.empty()) config.service = service(i);
        config.drive_reactor = drive_reactors_[first_thread(i)];
        subsystems.push_back(std::move(config));
    }
    nvmf::TargetOptions target;
    target.hosts = std::move(hosts);
    if (!port_.empty()) target.ports.push_back({.service = port_, .address = {}});
    GN_ASSIGN(target_, nvmf::Target::open(*nic_, subsystems, target));
    return {};
}

daemon::SsdIdentity Node::identity(std::uint32_t index) const {
    const ssd::Drive& drive = *drives_[index];
    daemon::SsdIdentity out;
    out.uuid = drive.uuid();
    out.nic_address = address_;
    out.service = port_.empty() ? service(index) : port_;
    out.subsystem_nqn = subsystem_nqn(index);
    out.serial = drive.serial();
    out.capacity_blocks = drive.capacity_blocks();
    return out;
}

EmbeddedSsd Node::describe(std::uint32_t index) const {
    const ssd::Drive& drive = *drives_[index];
    const deengine::EngineCounters c = drive.counters();
    EmbeddedSsd out{};
    out.slot = numbers_[index];
    out.serial = drive.serial();
    out.subsystem_nqn = subsystem_nqn(index);
    out.capacity_blocks = drive.capacity_blocks();
    out.reads = c.reads;
    out.writes = c.writes;
    out.flushes = c.flushes;
    out.trims = c.trims;
    out.refused = c.refused;
    out.media_errors = c.media_errors;
    out.blocks_read = c.blocks_read;
    out.blocks_written = c.blocks_written;
    out.mapped_blocks = c.mapped_blocks;
    out.free_pages = c.free_pages;
    out.pages_programmed = c.pages_programmed;
    out.gc_pages_copied = c.gc_pages_copied;
    out.scrubbed = c.scrubbed;
    out.scrub_bad = c.scrub_bad;
    out.units_bad = c.units_bad;
    out.lost_blocks = c.lost_blocks;
    out.forced = c.forced;
    out.write_protected = drive.write_protected();
    if (auto offload = target_->counters(subsystem_nqn(index)); offload.ok())
        out.capsules = offload->capsules;
    return out;
}

std::vector<EngineThread> Node::engine_threads() const {
    std::vector<EngineThread> threads;
    for (const auto& reactor : reactors_)
        threads.push_back({reactor->name(), reactor->cpu_time_ns(), reactor->busy_time_ns()});
    return threads;
}

}  // namespace gnstor::embedded
