#include "ssd/drive/admin.hpp"

#include "ssd/queues/nvme_queue.hpp"

#include <gnstor/nvme/copy.hpp>
#include <gnstor/nvme/counters_log.hpp>
#include <gnstor/nvme/fabrics.hpp>
#include <gnstor/nvme/fencing.hpp>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace gnstor::ssd {

using nvme::AdminOpcode;
using nvme::Feature;
using nvme::FeatureSelect;
using nvme::IdentifyCns;
using nvme::LogPage;
using nvme::Status;

namespace {

constexpr std::string_view kFirmware = GN_VERSION;
static_assert(
    kFirmware.size() <= sizeof nvme::IdentifyController::fr,
    "the version must fit the firmware revision field of Identify, or versions are compared in part");
constexpr std::uint16_t kTemperatureKelvin = 300;
constexpr std::uint32_t kWarningKelvin = 343;
constexpr std::uint8_t kSpareThreshold = 10;  // percent
constexpr std::uint32_t kNvmCommandSet = 0;   // CSI
/// RTD3 Entry Latency: a shutdown completes when every acknowledged write is on the medium, and hosts wait
/// this long for it (Linux: 5 s if a controller reports 0, and then proceeds without it).
constexpr std::uint32_t kShutdownUs = 30'000'000;
constexpr std::uint32_t kRetainEvent = 1u << 15;  // RAE, CDW10 of Get Log Page

template <std::size_t N>
void blank_padded(char (&field)[N], std::string_view text) {
    std::memset(field, ' ', N);
    std::memcpy(field, text.data(), std::min(N, text.size()));
}

/// Copies as much of `from` as `to` holds; what is left of `to` becomes zero.
void copy_out(std::span<std::byte> to, const void* from, std::size_t bytes) {
    const std::size_t n = std::min(to.size(), bytes);
    std::memcpy(to.data(), from, n);
    std::memset(to.data() + n, 0, to.size() - n);
}

std::string uuid_text(const std::array<std::uint8_t, 16>& uuid) {
    std::string out;
    for (std::size_t i = 0; i < uuid.size(); ++i) {
        if (i == 4 || i == 6 || i == 8 || i == 10) out += '-';
        out += fmt::format("{:02x}", uuid[i]);
    }
    return out;
}

/// Get Log Page: NUMD is 0's based, in 4 bytes, CDW10 31:16 and CDW11 15:0.
std::uint64_t log_page_bytes(const nvme::Command& c) {
    return (((std::uint64_t{c.cdw11 & 0xFFFFu} << 16) | (c.cdw10 >> 16)) + 1) * 4;
}

/// Available Spare in percent (Base 2.0, 5.16.1.3): how much bad erase units have left of the pages that a
/// new drive has beyond its promised capacity. 0: not more pages than promised.
std::uint8_t available_spare(const deengine::EngineCounters& c, std::uint64_t promised) {
    if (c.data_pages >= c.data_pages_new) return 100;  // also where there is no flash, as at a gateway
    if (c.data_pages <= promised) return 0;
    return static_cast<std::uint8_t>((c.data_pages - promised) * 100 / (c.data_pages_new - promised));
}

nvme::SsdCountersLog counters_log(const deengine::EngineCounters& c, std::uint64_t capacity_blocks) {
    nvme::SsdCountersLog log{};
    log.version = nvme::kCountersLogVersion;
    log.reads = c.reads;
    log.writes = c.writes;
    log.flushes = c.flushes;
    log.trims = c.trims;
    log.write_zeroes = c.zeroes;
    log.refused = c.refused;
    log.media_errors = c.media_errors;
    log.blocks_read = c.blocks_read;
    log.blocks_written = c.blocks_written;
    log.pages_programmed = c.pages_programmed;
    log.gc_pages_copied = c.gc_pages_copied;
    log.syncs = c.syncs;
    log.scrubbed_pages = c.scrubbed;
    log.scrub_bad_pages = c.scrub_bad;
    log.bad_units = c.units_bad;
    log.lost_blocks = c.lost_blocks;
    log.doubtful_blocks = c.doubtful;
    log.doubtful_volumes = c.doubtful_volumes;
    log.doubtful_reads = c.doubts_refused;
    log.older_reads = c.older_read;
    log.young_units = c.unstamped;
    log.mapped_blocks = std::min(c.mapped_blocks, capacity_blocks);
    log.available_spare_percent = available_spare(c, capacity_blocks);
    return log;
}

}  // namespace

void ErrorLog::add(std::uint16_t sq_id, const nvme::Command& command, Status status) {
    nvme::ErrorLogEntry& e = ring_[total_ % kErrorLogEntries];
    e = {};
    e.error_count = ++total_;
    e.sq_id = sq_id;
    e.command_id = host_command_id(command);
    e.status = static_cast<std::uint16_t>(nvme::to_field(status) << 1);
    e.parameter_location = 0xFFFF;  // not reported
    e.lba = command.cdw10 | (std::uint64_t{command.cdw11} << 32);
    e.namespace_id = command.namespace_id;
}

std::array<nvme::ErrorLogEntry, kErrorLogEntries> ErrorLog::newest_first() const {
    std::array<nvme::ErrorLogEntry, kErrorLogEntries> out{};
    const std::uint64_t n = std::min<std::uint64_t>(total_, kErrorLogEntries);
    for (std::uint64_t i = 0; i < n; ++i) out[i] = ring_[(total_ - 1 - i) % kErrorLogEntries];
    return out;
}

nvme::IdentifyController AdminHandler::controller() const {
    nvme::IdentifyController c{};
    blank_padded(c.sn, facts_.serial);
    blank_padded(c.mn, facts_.model);
    blank_padded(c.fr, kFirmware);
    c.rab = 6;
    c.cmic = 0x02;  // several controllers may share this subsystem
    c.mdts = kMdtsLog2;
    c.ver = nvme::kVersion20;
    c.ctratt = nvme::kCtrattHostId128;
    c.cntrltype = nvme::kControllerTypeIo;
    std::memcpy(c.fguid, facts_.uuid.data(), sizeof c.fguid);
    c.rtd3e = kShutdownUs;
    c.oaes = facts_.tells_of_changes ? nvme::kOaesNamespaceAttribute : 0;
    c.acl = 3;
    c.aerl = kAsyncEventRequests - 1;
    c.frmw = 0x03;  // one slot, read only
    c.lpa = nvme::kLpaCommandsSupported | nvme::kLpaExtendedData;
    c.elpe = kErrorLogEntries - 1;
    c.wctemp = kWarningKelvin;
    c.cctemp = 353;
    c.kas = 10;  // one second
    c.sqes = 0x66;
    c.cqes = 0x44;
    c.maxcmd = 1024;
    c.nn = 1;
    c.oncs = nvme::kOncsDatasetManagement | nvme::kOncsWriteZeroes;
    c.vwc = facts_.write_cache ? 1 : 0;
    c.awun = 0;
    c.awupf = 0;  // 0's based: one block
    c.sgls = nvme::kSglsSupported | nvme::kSglsKeyed | nvme::kSglsOffset;
    c.mnan = 1;
    const std::string nqn = "nqn.2014-08.org.nvmexpress:uuid:" + uuid_text(facts_.uuid);
    std::memcpy(c.subnqn, nqn.data(), nqn.size());
    c.ioccsz = (sizeof(nvme::Command) + kInCapsuleBytes) / 16;
    c.iorcsz = sizeof(nvme::Completion) / 16;
    c.icdoff = 0;
    c.fcatt = 0;  // dynamic controllers
    c.msdbd = 1;
    return c;
}

nvme::IdentifyNamespace AdminHandler::identify_namespace(const deengine::EngineCounters& counters) const {
    // Sizes are those of the flash. GNStor addresses (VID, client, VBA) lie above them: a host that knows no
    // volume stays below, so it addresses VID 0, which no volume has, and is refused.
    nvme::IdentifyNamespace n{};
    n.nsze = facts_.capacity_blocks;
    n.ncap = facts_.capacity_blocks;
    n.nuse = std::min(counters.mapped_blocks, facts_.capacity_blocks);
    n.nmic = 1;
    n.nsattr = facts_.write_protected ? nvme::kNsattrWriteProtected : 0;
    n.dlfeat = 0x09;  // deallocated blocks read as zeroes; write zeroes deallocates
    const std::uint64_t bytes = facts_.capacity_blocks * nvme::kBlockBytes;
    for (std::size_t i = 0; i < 8; ++i) n.nvmcap[i] = static_cast<std::uint8_t>(bytes >> (8 * i));
    std::memcpy(n.nguid, facts_.uuid.data(), sizeof n.nguid);
    std::memcpy(n.eui64, facts_.uuid.data() + 8, sizeof n.eui64);
    n.lbaf[0] = {0, 12, 0};
    return n;
}

std::uint32_t AdminHandler::data_bytes(const nvme::Command& command) {
    switch (static_cast<AdminOpcode>(command.opcode)) {
        case AdminOpcode::kIdentify:
            return nvme::kIdentifyBytes;
        case AdminOpcode::kGetLogPage:
            return static_cast<std::uint32_t>(
                std::min<std::uint64_t>(log_page_bytes(command), 0xFFFFFFFFull));
        default:
            return 0;
    }
}

AdminReply AdminHandler::handle(const nvme::Command& command, ControllerFeatures& features,
                                std::span<std::byte> data, const deengine::EngineCounters& counters,
                                const ErrorLog& errors) const {
    switch (static_cast<AdminOpcode>(command.opcode)) {
        case AdminOpcode::kIdentify:
            return identify(command, data, counters);
        case AdminOpcode::kGetLogPage:
            return get_log_page(command, features, data, counters, errors);
        case AdminOpcode::kSetFeatures:
            return set_features(command, features);
        case AdminOpcode::kGetFeatures:
            return get_features(command, features);
        case AdminOpcode::kKeepAlive:
            return {Status::kSuccess};  // the timer is nvmf's: it sees the capsule
        default:
            return {Status::kInvalidOpcode};
    }
}

AdminReply AdminHandler::identify(const nvme::Command& command, std::span<std::byte> data,
                                  const deengine::EngineCounters& counters) const {
    const std::uint32_t nsid = command.namespace_id;
    switch (static_cast<IdentifyCns>(command.cdw10 & 0xFFu)) {
        case IdentifyCns::kController: {
            const nvme::IdentifyController c = controller();
            copy_out(data, &c, sizeof c);
            return {Status::kSuccess};
        }
        case IdentifyCns::kNamespace: {
            if (nsid != kFirstNamespace && nsid != 0xFFFFFFFFu) return {Status::kInvalidNamespace};
            const nvme::IdentifyNamespace n = identify_namespace(counters);
            copy_out(data, &n, sizeof n);
            return {Status::kSuccess};
        }
        case IdentifyCns::kActiveNamespaces: {
            if (nsid >= 0xFFFFFFFEu) return {Status::kInvalidNamespace};
            nvme::NamespaceList list{};
            if (nsid < kFirstNamespace) list.nsid[0] = kFirstNamespace;
            copy_out(data, &list, sizeof list);
            return {Status::kSuccess};
        }
        case IdentifyCns::kNamespaceDescriptors: {
            if (nsid != kFirstNamespace) return {Status::kInvalidNamespace};
            const std::vector<std::uint8_t> list = descriptors();
            copy_out(data, list.data(), list.size());
            return {Status::kSuccess};
        }
        case IdentifyCns::kNamespaceOfSet: {
            // Extended LBA formats of the NVM command set: there are none.
            if ((command.cdw11 >> 24) != kNvmCommandSet) return {Status::kInvalidField};
            if (nsid != kFirstNamespace) return {Status::kInvalidNamespace};
            std::ranges::fill(data, std::byte{0});
            return {Status::kSuccess};
        }
        case IdentifyCns::kControllerOfSet: {
            if ((command.cdw11 >> 24) != kNvmCommandSet) return {Status::kInvalidField};
            nvme::IdentifyControllerNvm limits{};
            limits.dmrsl = facts_.trim_blocks_max;
            limits.dmsl = facts_.trim_blocks_max;
            copy_out(data, &limits, sizeof limits);
            return {Status::kSuccess};
        }
        case IdentifyCns::kNamespaceIndependent: {
            if (nsid != kFirstNamespace) return {Status::kInvalidNamespace};
            const nvme::IdentifyNamespace n = identify_namespace(counters);
            nvme::IdentifyNamespaceIndependent same{};
            same.nmic = n.nmic;
            same.nsattr = n.nsattr;
            same.nstat = nvme::kNstatReady;
            copy_out(data, &same, sizeof same);
            return {Status::kSuccess};
        }
    }
    return {Status::kInvalidField};
}

/// Identifiers of the namespace, the same as in Identify Namespace.
std::vector<std::uint8_t> AdminHandler::descriptors() const {
    std::vector<std::uint8_t> list;
    const auto add = [&](std::uint8_t type, std::span<const std::uint8_t> name) {
        list.insert(list.end(), {type, static_cast<std::uint8_t>(name.size()), 0, 0});
        list.insert(list.end(), name.begin(), name.end());
    };
    add(nvme::kDescriptorUuid, facts_.uuid);
    add(nvme::kDescriptorNguid, facts_.uuid);
    add(nvme::kDescriptorEui64, std::span(facts_.uuid).last<8>());
    return list;
}

nvme::HealthLog AdminHandler::health_log(const deengine::EngineCounters& counters,
                                         const ErrorLog& errors) const {
    nvme::HealthLog h{};
    h.temperature[0] = kTemperatureKelvin & 0xFF;
    h.temperature[1] = kTemperatureKelvin >> 8;
    h.available_spare = available_spare(counters, facts_.capacity_blocks);
    h.spare_threshold = kSpareThreshold;
    h.critical_warning = facts_.write_protected ? nvme::kHealthReadOnly : 0;
    if (h.available_spare < h.spare_threshold) h.critical_warning |= nvme::kHealthSpareLow;
    const auto units = [](std::uint64_t blocks) { return (blocks * nvme::kSectorsPerBlock + 999) / 1000; };
    h.data_units_read.set(units(counters.blocks_read));
    h.data_units_written.set(units(counters.blocks_written));
    h.host_reads.set(counters.reads);
    h.host_writes.set(counters.writes);
    h.media_errors.set(counters.media_errors);
    h.error_entries.set(errors.total());
    return h;
}

nvme::CommandsSupportedLog AdminHandler::commands_supported_log() const {
    nvme::CommandsSupportedLog l{};
    for (const auto op :
         {AdminOpcode::kGetLogPage, AdminOpcode::kIdentify, AdminOpcode::kAbort, AdminOpcode::kSetFeatures,
          AdminOpcode::kGetFeatures, AdminOpcode::kAsyncEventRequest, AdminOpcode::kKeepAlive})
        l.admin[static_cast<std::uint8_t>(op)] = nvme::kEffectSupported;
    for (const auto op : {nvme::IoOpcode::kFlush, nvme::IoOpcode::kRead})
        l.io[static_cast<std::uint8_t>(op)] = nvme::kEffectSupported;
    for (const auto op :
         {nvme::IoOpcode::kWrite, nvme::IoOpcode::kWriteZeroes, nvme::IoOpcode::kDatasetManagement})
        l.io[static_cast<std::uint8_t>(op)] = nvme::kEffectSupported | nvme::kEffectContentChange;
    if (!facts_.array_commands) return l;
    for (const auto op : {AdminOpcode::kVolumeAdd, AdminOpcode::kVolumeChmod, AdminOpcode::kVolumeDelete,
                          AdminOpcode::kVolumeList, AdminOpcode::kMapSet, AdminOpcode::kMapGet,
                          AdminOpcode::kFloor, nvme::kGrantAsk})
        l.admin[static_cast<std::uint8_t>(op)] = nvme::kEffectSupported;
    for (const auto op : {nvme::CopyOpcode::kCopyOpen, nvme::CopyOpcode::kCopyWrite,
                          nvme::CopyOpcode::kCopyRead, nvme::CopyOpcode::kCopySurvey})
        l.admin[static_cast<std::uint8_t>(op)] = nvme::kEffectSupported;
    return l;
}

AdminReply AdminHandler::get_log_page(const nvme::Command& command, ControllerFeatures& features,
                                      std::span<std::byte> data, const deengine::EngineCounters& counters,
                                      const ErrorLog& errors) const {
    const std::uint64_t offset = command.cdw12 | (std::uint64_t{command.cdw13} << 32);
    alignas(8) std::array<std::byte, 4096> page{};
    std::size_t bytes = 0;
    const auto fill = [&](const auto& log) {
        static_assert(sizeof log <= sizeof page);
        std::memcpy(page.data(), &log, sizeof log);
        bytes = sizeof log;
    };
    switch (static_cast<LogPage>(command.cdw10 & 0xFFu)) {
        case LogPage::kError:
            fill(errors.newest_first());
            break;
        case LogPage::kHealth:
            fill(health_log(counters, errors));
            break;
        case LogPage::kFirmwareSlot: {
            nvme::FirmwareSlotLog f{};
            f.afi = 1;
            blank_padded(f.revision[0], kFirmware);
            fill(f);
            break;
        }
        case LogPage::kChangedNamespaces: {
            if (!facts_.tells_of_changes) return {Status::kInvalidLogPage};
            nvme::NamespaceList list{};
            if (features.namespace_changed) list.nsid[0] = kFirstNamespace;
            fill(list);
            // Reading acknowledges the event, unless the host retains it (RAE).
            if (offset <= bytes && offset % 4 == 0 && (command.cdw10 & kRetainEvent) == 0)
                features.namespace_changed = features.notice_due = false;
            break;
        }
        case LogPage::kCommandsSupported:
            fill(commands_supported_log());
            break;
        default:
            if (!facts_.array_commands || (command.cdw10 & 0xFFu) != nvme::kCountersLogPage)
                return {Status::kInvalidLogPage};
            fill(counters_log(counters, facts_.capacity_blocks));
    }
    if (offset > bytes || offset % 4 != 0) return {Status::kInvalidField};
    copy_out(data, page.data() + offset, bytes - offset);
    return {Status::kSuccess};
}

AdminReply AdminHandler::set_features(const nvme::Command& command, ControllerFeatures& features) const {
    if ((command.cdw10 & nvme::kFeatureSave) != 0) return {Status::kFeatureNotSaveable};
    switch (static_cast<Feature>(command.cdw10 & 0xFFu)) {
        case Feature::kNumberOfQueues: {
            if ((command.cdw11 & 0xFFFFu) == 0xFFFFu || (command.cdw11 >> 16) == 0xFFFFu)
                return {Status::kInvalidField};
            const nvme::QueueCount asked = nvme::QueueCount::decode(command.cdw11);
            features.queues = {std::min(asked.submission, kMaxIoQueues),
                               std::min(asked.completion, kMaxIoQueues)};
            return {Status::kSuccess, features.queues.encode()};
        }
        case Feature::kKeepAliveTimer:
            features.keep_alive_ms = command.cdw11;
            return {Status::kSuccess};
        case Feature::kAsyncEventConfiguration:
            features.async_events = command.cdw11;
            return {Status::kSuccess};
        case Feature::kArbitration:
            features.arbitration = command.cdw11;
            return {Status::kSuccess};
        case Feature::kVolatileWriteCache: {
            if (!facts_.write_cache) return {Status::kInvalidField};
            // The cache is host memory: the store's durability option turns it off, no command does.
            const bool enable = (command.cdw11 & nvme::kWriteCacheEnabled) != 0;
            return {enable ? Status::kSuccess : Status::kFeatureNotChangeable};
        }
        case Feature::kPowerManagement:
        case Feature::kTemperatureThreshold:
        case Feature::kErrorRecovery:
        case Feature::kWriteAtomicity:
            return {Status::kFeatureNotChangeable};
    }
    return {Status::kInvalidField};
}

AdminReply AdminHandler::get_features(const nvme::Command& command,
                                      const ControllerFeatures& features) const {
    const auto select = static_cast<FeatureSelect>((command.cdw10 >> 8) & 7u);
    if (select > FeatureSelect::kSupported) return {Status::kInvalidField};
    const ControllerFeatures& f = select == FeatureSelect::kCurrent ? features : ControllerFeatures{};
    const std::uint32_t sensor = (command.cdw11 >> 16) & 0xFu;
    const bool under = ((command.cdw11 >> 20) & 3u) != 0;
    std::uint32_t value = 0;
    bool changeable = true;
    switch (static_cast<Feature>(command.cdw10 & 0xFFu)) {
        case Feature::kNumberOfQueues:
            value = f.queues.encode();
            break;
        case Feature::kKeepAliveTimer:
            value = f.keep_alive_ms;
            break;
        case Feature::kAsyncEventConfiguration:
            value = f.async_events;
            break;
        case Feature::kArbitration:
            value = f.arbitration;
            break;
        case Feature::kVolatileWriteCache:
            if (!facts_.write_cache) return {Status::kInvalidField};
            value = nvme::kWriteCacheEnabled;
            changeable = false;
            break;
        case Feature::kPowerManagement:
        case Feature::kErrorRecovery:
        case Feature::kWriteAtomicity:
            changeable = false;
            break;
        case Feature::kTemperatureThreshold:
            // Only the composite temperature has a sensor; there is no lower threshold.
            if (sensor != 0) return {Status::kInvalidField};
            value = under ? 0 : kWarningKelvin;
            changeable = false;
            break;
        default:
            return {Status::kInvalidField};
    }
    if (select == FeatureSelect::kSupported) value = changeable ? nvme::kFeatureChangeable : 0;
    return {Status::kSuccess, value};
}

}  // namespace gnstor::ssd
