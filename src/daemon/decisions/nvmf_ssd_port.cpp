// nvmf_ssd_port.cpp: vendor commands to one drive, over its admin queue.
#include "daemon/decisions/nvmf_ssd_port.hpp"

#include "nvmf/auth/derived_keys.hpp"
#include "nvmf/protocol/nqn.hpp"

#include <gnstor/base/uuid.hpp>
#include <gnstor/nvme/fencing.hpp>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

namespace gnstor::daemon {
namespace {

constexpr std::size_t kListBatch = 128;
constexpr std::uint32_t kVolumesMost = 65'535;       // all VIDs except 0
constexpr std::uint32_t kCountersTimeoutMs = 1'000;  // short: a request for metrics holds the daemon's mutex

/// The daemon's host id: fixed, so that all its queues belong to one host.
nvmf::HostId admin_host_id() {
    nvmf::HostId id{};
    constexpr char kName[] = "gnstord-admin-00";
    static_assert(sizeof kName == 17, "a host id has 16 bytes");
    std::memcpy(id.data(), kName, id.size());
    return id;
}

/// Null without a node key.
Result<std::shared_ptr<const nvmf::HostAuthentication>> admin_keys(const nvmf::auth::DhchapKey* node_key) {
    if (node_key == nullptr) return std::shared_ptr<const nvmf::HostAuthentication>();
    GN_ASSIGN(nvmf::auth::DhchapKeys keys,
              nvmf::auth::derive_keys(*node_key, nvmf::kAdminHostNqn, nvmf::auth::kAdminGeneration));
    nvmf::HostAuthentication own{std::move(keys.host), std::move(keys.controller), {}};
    own.policy.require_bidirectional = true;
    return std::make_shared<const nvmf::HostAuthentication>(std::move(own));
}

Result<nvmf::HostOptions> host_options(const SsdIdentity& ssd, const NvmfSsdPortOptions& port) {
    nvmf::HostOptions options;
    GN_ASSIGN(options.authentication, admin_keys(port.node_key.get()));
    options.peer_address = ssd.nic_address;
    options.service = ssd.service;
    options.subsystem_nqn = ssd.subsystem_nqn;
    options.host_nqn = std::string(nvmf::kAdminHostNqn);
    options.host_id = admin_host_id();
    options.keep_alive_ms =
        0;  // none: a suspended daemon keeps its association; the term protects the drives
    options.timeout_ms = port.timeout_ms;
    options.io_queues = 1;
    return options;
}

/// Errors of a connection must not pass for answers of the SSD: for the Manager kNotFound means that the SSD has no
/// such volume, kState that the daemon was superseded, kNoSpace, kExists and kUnsupported that the SSD refused a
/// record.
Error transport_error(Error e) {
    const bool kept =
        e.code == Errc::kTimedOut || e.code == Errc::kPermission || e.code == Errc::kInvalidArgument;
    if (!kept) e.code = Errc::kIo;
    return e;
}

/// A field of Identify, without trailing blanks or zeroes.
template <class Field>
std::string text_of(const Field& field) {
    std::string text(reinterpret_cast<const char*>(field), sizeof field);
    text.resize(text.find_last_not_of(std::string_view(" \0", 2)) + 1);
    return text;
}

template <class T>
std::span<std::byte> bytes_of(T& value) {
    return std::as_writable_bytes(std::span<T, 1>(&value, 1));
}

}  // namespace

Result<std::unique_ptr<NvmfSsdPort>> NvmfSsdPort::connect(rdma::Nic& nic, std::uint32_t slot,
                                                          const SsdIdentity& identity,
                                                          NvmfSsdPortOptions options) {
    std::unique_ptr<NvmfSsdPort> port = later(nic, slot, identity, std::move(options));
    GN_TRY(port->ensure_connected());
    return port;
}

std::unique_ptr<NvmfSsdPort> NvmfSsdPort::later(rdma::Nic& nic, std::uint32_t slot,
                                                const SsdIdentity& identity, NvmfSsdPortOptions options) {
    return std::unique_ptr<NvmfSsdPort>(new NvmfSsdPort(nic, slot, identity, std::move(options)));
}

Result<SsdIdentity> NvmfSsdPort::identify(rdma::Nic& nic, SsdIdentity where,
                                          const NvmfSsdPortOptions& options) {
    GN_ASSIGN(const nvmf::HostOptions own, host_options(where, options));
    GN_ASSIGN(const std::unique_ptr<nvmf::HostController> host, nvmf::HostController::connect(nic, own));
    GN_ASSIGN(const nvme::IdentifyController controller, host->identify_controller());
    GN_ASSIGN(const nvme::IdentifyNamespace ns, host->identify_namespace());
    static_assert(sizeof ns.nguid == sizeof where.uuid, "an NGUID holds a UUID");
    std::memcpy(where.uuid.data(), ns.nguid, where.uuid.size());
    where.serial = text_of(controller.sn);
    where.capacity_blocks = ns.nsze;
    return where;
}

Result<void> NvmfSsdPort::ensure_connected() {
    if (options_.reachable && !options_.reachable()) {
        host_.reset();
        return error(Errc::kIo, "the node at {} does not answer; see its log, and start the node again",
                     identity_.nic_address);
    }
    if (host_ && host_->connected()) return {};
    host_.reset();
    GN_ASSIGN(const nvmf::HostOptions own, host_options(identity_, options_));
    auto connected = nvmf::HostController::connect(nic_, own);
    if (!connected.ok()) return transport_error(std::move(connected).error());
    host_ = std::move(connected).value();
    is_new_ = true;
    // The program that serves the SSD may have changed. An SSD that does not answer Identify is served all
    // the same.
    const Result<nvme::IdentifyController> says = host_->identify_controller();
    firmware_ = says.ok() ? text_of(says->fr) : std::string();
    const Result<nvme::IdentifyNamespace> ns = host_->identify_namespace();
    keeps_terms_ = ns.ok() && (ns->nsattr & nvme::kNsattrWriteProtected) == 0;
    return {};
}

Result<std::uint32_t> NvmfSsdPort::send(const char* what, nvme::AdminOpcode opcode, std::uint64_t term,
                                        std::span<std::byte> data, nvmf::Direction direction,
                                        std::uint32_t cdw10, std::uint32_t cdw11) {
    GN_TRY(ensure_connected());
    // A reconnected SSD may have another store: list it before a command raises its term.
    const bool raises = opcode != nvme::AdminOpcode::kVolumeList && opcode != nvme::kGrantAsk;
    const auto unlisted = [&] {
        return error(Errc::kIo, "SSD {} was reconnected, and its volumes are not listed yet",
                     identity_.subsystem_nqn);
    };
    if (raises && is_new_) return unlisted();
    nvme::Command command{};
    command.opcode = static_cast<std::uint8_t>(opcode);
    command.flags = nvme::kFlagsSgl;
    command.cdw10 = cdw10;
    command.cdw11 = cdw11;
    command.cdw14 = static_cast<std::uint32_t>(term);
    command.cdw15 = static_cast<std::uint32_t>(term >> 32);
    auto completion = host_->admin(command, data, direction);
    if (!completion.ok() && !host_->connected()) {
        // If the drive's process was killed, the loss of the association shows only now. Commands may be
        // repeated (Manager::command), so this one is sent once more.
        // Whatever keeps this from connecting: the command may have been carried out, so it is no refusal (kIo).
        if (Result<void> again = ensure_connected(); !again.ok())
            return error(Errc::kIo, "the connection to SSD {} was lost during {}: {}",
                         identity_.subsystem_nqn, what, again.error().message);
        if (raises) return unlisted();
        completion = host_->admin(command, data, direction);
    }
    if (!completion.ok()) return transport_error(completion.error());
    busy_ = completion->result() == nvme::Status::kBusy;
    if (nvme::ok(completion->result())) return completion->dw0;
    return ssd_error(completion->result(), what, identity_.subsystem_nqn);
}

Result<SsdVolumes> NvmfSsdPort::volume_list(std::uint64_t term) {
    std::vector<std::byte> buffer(sizeof(nvme::VolumeListHeader) + kListBatch * sizeof(nvme::VolumeRecord));
    SsdVolumes list;
    for (std::uint32_t first = 0;;) {
        GN_ASSIGN(list.highest_deleted_epoch,
                  send("VOLUME LIST", nvme::AdminOpcode::kVolumeList, term, buffer, nvmf::Direction::kToHost,
                       first, static_cast<std::uint32_t>(buffer.size())));
        nvme::VolumeListHeader header;
        std::memcpy(&header, buffer.data(), sizeof header);
        list.incomplete = (header.returned & nvme::kListIncomplete) != 0;
        header.returned &= ~nvme::kListIncomplete;
        if (header.returned > kListBatch)
            return error(Errc::kCorrupt, "{} lists {} volumes in room for {}", identity_.subsystem_nqn,
                         header.returned, kListBatch);
        // An SSD's answer may be wrong: without this check, a total above the number of VIDs could keep the
        // loop going.
        if (header.total > kVolumesMost || (header.returned != 0 && first + header.returned > header.total))
            return error(Errc::kCorrupt, "{} lists {} volumes from the {}th on, of {}; an SSD has at most {}",
                         identity_.subsystem_nqn, header.returned, first, header.total, kVolumesMost);
        list.term = header.term;
        for (std::uint32_t i = 0; i < header.returned; ++i)
            std::memcpy(&list.records.emplace_back(),
                        buffer.data() + sizeof header + i * sizeof(nvme::VolumeRecord),
                        sizeof(nvme::VolumeRecord));
        first += header.returned;
        if (header.returned != 0 && first < header.total) continue;
        GN_ASSIGN(list.newest_map, newest_map(list.knows_out));
        is_new_ = false;
        return list;
    }
}

/// Version 0 of an SSD whose firmware does not know the command. On the connection that has just listed the volumes.
Result<placement::ArrayMap> NvmfSsdPort::newest_map(bool& known) {
    nvme::MapSet newest{};
    nvme::Command command{};
    command.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::kMapGet);
    command.flags = nvme::kFlagsSgl;
    const auto completion = host_->admin(command, bytes_of(newest), nvmf::Direction::kToHost);
    if (!completion.ok()) return transport_error(completion.error());
    known = completion->result() != nvme::Status::kInvalidOpcode;
    if (!known) return placement::ArrayMap{};
    if (!nvme::ok(completion->result()))
        return ssd_error(completion->result(), "MAP GET", identity_.subsystem_nqn);
    if (newest.map.slot_count > placement::kMaxSlots)
        return error(Errc::kCorrupt, "{} has a map of {} slots", identity_.subsystem_nqn,
                     newest.map.slot_count);
    return newest.map;
}

Result<void> NvmfSsdPort::volume_add(std::uint64_t term, const nvme::VolumeRecord& record) {
    nvme::VolumeRecord copy = record;
    GN_TRY(send("VOLUME ADD", nvme::AdminOpcode::kVolumeAdd, term, bytes_of(copy), nvmf::Direction::kToDrive,
                0, 0));
    return {};
}

Result<void> NvmfSsdPort::volume_chmod(std::uint64_t term, const nvme::VolumeRecord& record) {
    nvme::VolumeRecord copy = record;
    GN_TRY(send("VOLUME CHMOD", nvme::AdminOpcode::kVolumeChmod, term, bytes_of(copy),
                nvmf::Direction::kToDrive, 0, 0));
    return {};
}

Result<void> NvmfSsdPort::volume_remove(std::uint64_t term, nvme::VolumeId volume) {
    GN_TRY(
        send("VOLUME DELETE", nvme::AdminOpcode::kVolumeDelete, term, {}, nvmf::Direction::kNone, volume, 0));
    return {};
}

Result<std::uint32_t> NvmfSsdPort::grant_ask(std::uint64_t term) {
    return send("GRANT ASK", nvme::kGrantAsk, term, {}, nvmf::Direction::kNone, 0, 0);
}

Result<void> NvmfSsdPort::map_set(std::uint64_t term, const nvme::MapSet& map, std::uint32_t nonce) {
    nvme::MapSet copy = map;
    GN_TRY(send("MAP SET", nvme::AdminOpcode::kMapSet, term, bytes_of(copy), nvmf::Direction::kToDrive, nonce,
                0));
    return {};
}

/// A list of which a page is lost, as when the connection breaks, is sent again from its first page.
Result<void> NvmfSsdPort::hosts_set(std::uint64_t term, std::uint64_t version,
                                    std::span<const nvme::HostSetEntry> hosts) {
    busy_ = false;
    Result<void> sent = send_hosts(term, version, hosts);
    // Busy: the node has the list, but queues that it ends still use its memory. Once more, as that passes.
    if (busy_ && !sent.ok()) sent = send_hosts(term, version, hosts);
    return sent;
}

Result<void> NvmfSsdPort::send_hosts(std::uint64_t term, std::uint64_t version,
                                     std::span<const nvme::HostSetEntry> hosts) {
    nvme::HostSetPage page{};
    page.record_version = nvme::kHostSetVersion;
    page.term = term;
    page.version = version;
    page.total = static_cast<std::uint32_t>(hosts.size());
    do {
        const std::span<const nvme::HostSetEntry> left = hosts.subspan(page.first);
        page.count = static_cast<std::uint32_t>(std::min<std::size_t>(left.size(), std::size(page.entries)));
        std::ranges::fill(page.entries, nvme::HostSetEntry{});
        std::ranges::copy(left.first(page.count), page.entries);
        GN_TRY(send("HOST SET", nvme::AdminOpcode::kHostSet, term, bytes_of(page), nvmf::Direction::kToDrive,
                    0, 0));
        page.first += page.count;
    } while (page.first < page.total);
    return {};
}

/// Does not connect, as a connection to another store must be listed first; the next grant does both.
nvme::Status NvmfSsdPort::copy(const nvme::Command& command, std::span<std::byte> data, std::uint32_t& dw0) {
    constexpr nvmf::Direction kDirections[] = {nvmf::Direction::kNone, nvmf::Direction::kToDrive,
                                               nvmf::Direction::kToHost, nvmf::Direction::kNone};
    if ((options_.reachable && !options_.reachable()) || host_ == nullptr || !host_->connected() || is_new_)
        return nvme::Status::kQueueError;
    const auto completion = host_->admin(command, data, kDirections[command.opcode & 3u]);
    if (!completion.ok()) return nvme::Status::kQueueError;
    dw0 = completion->dw0;
    return completion->result();
}

/// Does not connect, because that may take long; the next grant does.
Result<nvme::SsdCountersLog> NvmfSsdPort::counters() {
    if ((options_.reachable && !options_.reachable()) || host_ == nullptr || !host_->connected())
        return error(Errc::kIo, "there is no connection to {} now", identity_.subsystem_nqn);
    nvme::SsdCountersLog log{};
    auto answered = host_->admin_checked("Get Log Page (counters)", nvme::counters_log_command(),
                                         bytes_of(log), nvmf::Direction::kToHost, kCountersTimeoutMs);
    if (!answered.ok()) return transport_error(answered.error());
    if (log.version < nvme::kCountersLogOldest)
        return error(Errc::kUnsupported, "{} has no counters of a version that this gnstord knows",
                     identity_.subsystem_nqn);
    return log;
}

std::string NvmfSsdPort::firmware() const {
    return host_ != nullptr && host_->connected() ? firmware_ : std::string();
}

std::string firmware_of(std::span<const std::unique_ptr<NvmfSsdPort>> ports, const SsdInfo& ssd) {
    for (const auto& port : ports)
        if (Uuid{port->identity().uuid}.to_string() == ssd.uuid) return port->firmware();
    return {};
}

SsdReadings readings_from(const nvme::SsdCountersLog& log) {
    SsdReadings out;
    out.counters = {{"reads", log.reads},
                    {"writes", log.writes},
                    {"flushes", log.flushes},
                    {"trims", log.trims},
                    {"write_zeroes", log.write_zeroes},
                    {"refused", log.refused},
                    {"media_errors", log.media_errors},
                    {"blocks_read", log.blocks_read},
                    {"blocks_written", log.blocks_written},
                    {"pages_programmed", log.pages_programmed},
                    {"gc_pages_copied", log.gc_pages_copied},
                    {"syncs", log.syncs},
                    {"scrubbed_pages", log.scrubbed_pages},
                    {"scrub_bad_pages", log.scrub_bad_pages},
                    {"bad_units", log.bad_units},
                    {"lost_blocks", log.lost_blocks},
                    {"doubtful_blocks", log.doubtful_blocks},
                    {"doubtful_volumes", log.doubtful_volumes},
                    {"doubtful_reads", log.doubtful_reads},
                    {"older_reads", log.older_reads},
                    {"young_units", log.young_units},
                    {"capsules", log.capsules},
                    {"connections_accepted", log.connections_accepted},
                    {"connections_refused", log.connections_refused},
                    {"connections_failed", log.connections_failed},
                    {"connections_disconnected", log.connections_disconnected},
                    {"keep_alive_expired", log.keep_alive_expired}};
    if (log.version >= nvme::kCountersLogWithUse) {
        out.used_blocks = log.mapped_blocks;
        out.spare_percent = static_cast<std::uint32_t>(log.available_spare_percent);
    }
    return out;
}

SsdReadings readings_of(std::span<const std::unique_ptr<NvmfSsdPort>> ports, const SsdInfo& ssd) {
    for (const auto& port : ports) {
        if (Uuid{port->identity().uuid}.to_string() != ssd.uuid) continue;
        const Result<nvme::SsdCountersLog> log = port->counters();
        if (!log.ok()) return {};
        return readings_from(*log);
    }
    return {};
}

}  // namespace gnstor::daemon
