// ssd_session.cpp: connecting to one SSD: the association, then queue pairs.
#include "client/ssd_session.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <span>

namespace gnstor::client {
namespace {

constexpr std::uint32_t kConnectTimeoutMs = 10'000;

nvmf::HostOptions options_for(const ClientIdentity& identity, const nvmf::HostId& host_id,
                              std::uint32_t keep_alive_ms, std::uint32_t channels) {
    nvmf::HostOptions options;
    options.host_nqn = identity.host_nqn;
    options.host_id = host_id;
    options.keep_alive_ms = keep_alive_ms;
    options.io_queues = channels;
    return options;
}

bool same(const SsdAddress& a, const SsdAddress& b) {
    return std::ranges::equal(a.uuid, b.uuid) && a.nic_address == b.nic_address && a.service == b.service &&
           a.subsystem_nqn == b.subsystem_nqn;
}

}  // namespace

SsdSession::SsdSession(rdma::Nic& nic, std::uint32_t slot, const ClientIdentity& identity,
                       const nvmf::HostId& host_id, std::uint32_t keep_alive_ms, std::uint32_t channels)
    : nic_(nic), slot_(slot), options_(options_for(identity, host_id, keep_alive_ms, channels)) {}

bool SsdSession::fill(const SsdAddress& ssd) {
    const std::lock_guard lock(mutex_);
    if (ssd_ && same(*ssd_, ssd)) return false;
    host_.reset();
    ssd_ = ssd;
    return true;
}

std::optional<SsdAddress> SsdSession::ssd() const {
    const std::lock_guard lock(mutex_);
    return ssd_;
}

std::string SsdSession::name() const {
    const auto ssd = this->ssd();
    return ssd ? ssd->subsystem_nqn : fmt::format("the SSD of slot {}", slot_);
}

std::string SsdSession::nic_address() const {
    const auto ssd = this->ssd();
    return ssd ? ssd->nic_address : std::string();
}

Result<std::shared_ptr<nvmf::HostController>> SsdSession::host() const {
    {
        const std::lock_guard lock(mutex_);
        if (host_ != nullptr) return host_;
    }
    return error(Errc::kState, "there is no association with {}; reclaim() makes a new association", name());
}

Result<void> SsdSession::keep_alive() {
    GN_ASSIGN(const auto host, this->host());
    Result<void> kept = host->keep_alive();
    const std::lock_guard lock(mutex_);
    if (host_ == host) return kept;
    // Meanwhile another association, perhaps with another SSD, took its place: the answer says nothing of that.
    if (host_ != nullptr && host_->connected()) return {};
    return error(Errc::kState, "the association with the SSD of slot {} has ended", slot_);
}

bool SsdSession::alive() {
    const auto found = host();
    if (!found.ok()) return false;
    return (*found)->connected() && (*found)->property_get(nvme::Property::kCsts).ok();
}

Result<bool> SsdSession::volatile_write_cache() {
    GN_ASSIGN(const auto host, this->host());
    GN_ASSIGN(const nvme::IdentifyController identify, host->identify_controller());
    return (identify.vwc & 1u) != 0;
}

Result<SsdCounts> SsdSession::counts() {
    GN_ASSIGN(const auto host, this->host());
    GN_ASSIGN(const nvme::HealthLog health, host->health_log());
    GN_ASSIGN(const nvme::IdentifyNamespace space, host->identify_namespace());
    return SsdCounts{slot_, health.host_reads.low(), health.host_writes.low(), health.media_errors.low(),
                     space.nuse};
}

Result<nvme::Completion> SsdSession::tell_floor(nvme::VolumeId volume, nvme::Epoch epoch,
                                                std::uint64_t floor) {
    GN_ASSIGN(const auto host, this->host());
    return host->admin(nvme::encode_floor(volume, epoch, floor), {}, nvmf::Direction::kNone);
}

Result<void> SsdSession::set_keys(const SsdKeys& keys) {
    GN_ASSIGN(nvmf::HostAuthentication parsed,
              nvmf::parse_host_authentication(keys.host_key, keys.controller_key));
    // A node that shares memory is found by its socket, whose listener the operating system names.
    parsed.required = !nic_.wants_shared_memory();
    options_.authentication = std::make_shared<const nvmf::HostAuthentication>(std::move(parsed));
    return {};
}

Result<void> SsdSession::reopen() {
    std::optional<SsdAddress> ssd;
    {
        const std::lock_guard lock(mutex_);
        host_.reset();
        ssd = ssd_;
    }
    if (!ssd)
        return error(Errc::kState, "slot {} has no SSD that gnstord has found; see 'gnstor health'", slot_);
    options_.peer_address = ssd->nic_address;
    options_.service = ssd->service;
    options_.subsystem_nqn = ssd->subsystem_nqn;
    GN_ASSIGN(std::shared_ptr<nvmf::HostController> fresh, nvmf::HostController::connect(nic_, options_));
    if (fresh->io_queues() < options_.io_queues)
        return error(Errc::kNoSpace,
                     "{} grants {} I/O queues of the {} that the client's channels need; open fewer channels",
                     ssd->subsystem_nqn, fresh->io_queues(), options_.io_queues);
    const std::lock_guard lock(mutex_);
    if (!same(*ssd_, *ssd))
        return error(Errc::kBusy, "another SSD has taken the place of {}; reclaim() again",
                     ssd->subsystem_nqn);
    host_ = std::move(fresh);
    associations_.fetch_add(1, std::memory_order_relaxed);  // a number that orders nothing
    return {};
}

Result<void> SsdSession::connect_queue(gnor::Channel& channel, std::uint16_t queue_id) {
    GN_ASSIGN(const auto host, this->host());
    const nvmf::IoQueueConnect queue = host->io_queue(queue_id, channel.options().depth);
    GN_TRY(host->connect_transport(channel.queue_pair(slot_), queue));
    const nvme::ConnectData data = queue.data();
    GN_ASSIGN(const nvme::Completion answer,
              channel.execute_from_host(slot_, queue.command(0), std::as_bytes(std::span(&data, 1)),
                                        kConnectTimeoutMs));
    GN_TRY(queue.check(answer));
    const nvmf::AuthCommands commands{
        .send =
            [&](const nvme::Command& command, std::span<const std::byte> message) {
                return channel.execute_from_host(slot_, command, message, kConnectTimeoutMs);
            },
        .receive =
            [&](const nvme::Command& command, std::span<std::byte> buffer) {
                return channel.execute_from_host(slot_, command, {}, kConnectTimeoutMs, buffer);
            }};
    GN_TRY(host->authenticate_queue(queue, answer, commands));
    const std::lock_guard lock(mutex_);
    if (host_ != host)
        return error(Errc::kBusy, "another SSD has taken slot {} meanwhile; reclaim() again", slot_);
    return {};
}

}  // namespace gnstor::client
