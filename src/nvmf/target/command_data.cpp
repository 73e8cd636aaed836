#include "nvmf/target/command_data.hpp"

#include <gnstor/nvme/copy.hpp>
#include <gnstor/nvme/counters_log.hpp>
#include <gnstor/nvme/host_set.hpp>
#include <gnstor/nvme/vendor.hpp>

#include <algorithm>
#include <cstring>
#include <utility>

#if defined(__SANITIZE_THREAD__)
extern "C" void AnnotateIgnoreReadsBegin(const char* file, int line);
extern "C" void AnnotateIgnoreReadsEnd(const char* file, int line);
extern "C" void AnnotateIgnoreWritesBegin(const char* file, int line);
extern "C" void AnnotateIgnoreWritesEnd(const char* file, int line);
#endif

namespace gnstor::nvmf {

using nvme::Status;

namespace {

/// Data that the drive interprets rather than stores is copied once, before it is read: the host may change
/// its memory between two reads. So it must fit a page; all such structures do. Block data may change in
/// flight, as on any RDMA target; the drive checksums what it copied.
static_assert(sizeof(nvme::HostSetPage) <= kInCapsuleBytes && sizeof(nvme::MapSet) <= kInCapsuleBytes &&
                  sizeof(nvme::VolumeRecord) <= kInCapsuleBytes &&
                  256 * sizeof(nvme::DsmRange) <= kInCapsuleBytes,
              "command data that the drive interprets must fit one staging page");
bool is_block_data(QueueKind kind, const nvme::Command& command) {
    // Of the admin commands only this one carries blocks; the drive copies its records before it reads them.
    if (kind == QueueKind::kAdmin)
        return command.opcode == static_cast<std::uint8_t>(nvme::CopyOpcode::kCopyWrite);
    return kind == QueueKind::kIo && !is_fabrics(command) &&
           command.opcode != static_cast<std::uint8_t>(nvme::IoOpcode::kDatasetManagement);
}

/// Reads the host's memory, which the host or another of its commands may write at the same time: the copy is
/// then a mixture, by the host's own fault. These reads are hidden from ThreadSanitizer.
void copy_from_peer(std::byte* to, const std::byte* from, std::uint32_t bytes) {
#if defined(__SANITIZE_THREAD__)
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
#endif
    std::memcpy(to, from, bytes);
#if defined(__SANITIZE_THREAD__)
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
#endif
}

/// Writes the host's memory: hidden from ThreadSanitizer for the same reason.
void clear_of_peer(std::byte* to, std::uint64_t bytes) {
#if defined(__SANITIZE_THREAD__)
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
#endif
    std::memset(to, 0, bytes);
#if defined(__SANITIZE_THREAD__)
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
#endif
}

/// Only reads of the whole page count: the target must find its own fields in it.
bool is_counters_log(const Capsule& capsule) {
    const nvme::Command& c = capsule.command;
    return c.opcode == static_cast<std::uint8_t>(nvme::AdminOpcode::kGetLogPage) &&
           (c.cdw10 & 0xFFu) == nvme::kCountersLogPage && c.cdw12 == 0 && c.cdw13 == 0 &&
           capsule.bytes == sizeof(nvme::SsdCountersLog);
}

}  // namespace

/// Whether interpreted data exceeds a page. It is not fetched: the drive refuses the command by its opcode,
/// or by a length of 0.
bool CommandData::too_long(const Capsule& capsule) const {
    return capsule.direction == Direction::kToDrive && capsule.bytes > kInCapsuleBytes &&
           !is_block_data(kind_, capsule.command);
}

std::uint32_t CommandData::fetch_bytes(const ParsedCapsule& parsed) {
    const Capsule& capsule = parsed.capsule;
    const bool fetched = parsed.verdict == Verdict::kGood && capsule.payload == Payload::kKeyed &&
                         capsule.direction == Direction::kToDrive;
    return fetched ? capsule.bytes : 0;
}

std::byte* CommandData::page(CommandEntry& entry) {
    if (entry.page == nullptr) entry.page = pages_->take();
    return entry.page.get();
}

std::uint32_t CommandData::staging_need(CommandEntry& entry, const Capsule& capsule,
                                        const MessageBytes& bytes, bool writes_in_order) {
    if (capsule.payload == Payload::kNone) return 0;
    const bool blocks = is_block_data(kind_, capsule.command);
    entry.carries_blocks = capsule.payload == Payload::kInCapsule && blocks;
    if (entry.carries_blocks && bytes.contiguous(capsule.offset, capsule.bytes) != nullptr) {
        entry.has_page = !writes_in_order && admission_.take_staging_now(kInCapsuleBytes);
        entry.in_place = !entry.has_page;
        return 0;
    }
    if (capsule.payload == Payload::kKeyed && too_long(capsule)) return 0;
    entry.has_page = capsule.payload == Payload::kInCapsule || !blocks || kind_ == QueueKind::kAdmin;
    const std::uint32_t page = entry.has_page ? kInCapsuleBytes : 0;
    return page + (capsule.payload == Payload::kKeyed && admission_.counts_windows()
                       ? rdma::window_room(capsule.bytes)
                       : 0);
}

Status CommandData::place(CommandEntry& entry, const Capsule& capsule, const MessageBytes& bytes,
                          std::byte*& data) {
    if (entry.in_place) {
        // The drive only reads what it writes to flash.
        data = const_cast<std::byte*>(bytes.contiguous(capsule.offset, capsule.bytes));
        return Status::kSuccess;
    }
    if (entry.carries_blocks) counters_.staged_writes.add();
    if (capsule.payload == Payload::kInCapsule) {
        data = page(entry);
        bytes.copy(capsule.offset, capsule.bytes, data);
    }
    entry.bytes = capsule.bytes;
    const bool to_drive = capsule.direction == Direction::kToDrive;
    if (capsule.payload == Payload::kKeyed && !too_long(capsule)) {
        const auto use = to_drive ? rdma::WindowUse::kRead : rdma::WindowUse::kWrite;
        if (!nic_.open_window(qp_, capsule.address, capsule.bytes, capsule.key, use, entry.window)) {
            if (admission_.counts_windows()) admission_.give_staging(rdma::window_room(capsule.bytes));
            return Status::kDataTransferError;
        }
        entry.holds_window = true;
        entry.fills_window = !to_drive;
        if (!to_drive)
            data = where_to_answer(entry, capsule);
        else if (entry.window.ready)
            data = take_fetched(entry, capsule);
    }
    // The message is not read any more.
    release_message(entry);
    return Status::kSuccess;
}

/// Address at which the drive writes the data that the host asked for.
std::byte* CommandData::where_to_answer(CommandEntry& entry, const Capsule& capsule) {
    if (kind_ == QueueKind::kIo) return entry.window.data;
    entry.completes_identify =
        entry.opcode == static_cast<std::uint8_t>(nvme::AdminOpcode::kIdentify) &&
        (capsule.command.cdw10 & 0xFFu) == static_cast<std::uint8_t>(nvme::IdentifyCns::kController);
    entry.completes_counters = is_counters_log(capsule);
    if (entry.completes_identify || entry.completes_counters) return page(entry);
    // An admin command may return less than the host has room for. The rest must not expose what NIC memory
    // held before.
    clear_of_peer(entry.window.data, entry.window.bytes);
    return entry.window.data;
}

/// The NIC has fetched the data. Data that is interpreted rather than stored is copied to a page, which it
/// fits (too_long).
std::byte* CommandData::take_fetched(CommandEntry& entry, const Capsule& capsule) {
    if (is_block_data(kind_, capsule.command)) return entry.window.data;
    copy_from_peer(page(entry), entry.window.data, capsule.bytes);
    nic_.close_window(qp_, entry.window);
    entry.holds_window = false;
    return page(entry);
}

std::optional<std::uint32_t> CommandData::filled(const CommandTable& table, std::uint64_t cookie) {
    const auto at = std::ranges::find_if(
        awaited_, [&](std::uint32_t index) { return table[index].window.cookie == cookie; });
    if (at == awaited_.end()) return std::nullopt;
    const std::uint32_t index = *at;
    awaited_.erase(at);
    return index;
}

void CommandData::release(CommandEntry& entry, bool filled) {
    if (std::exchange(entry.holds_window, false)) nic_.close_window(qp_, entry.window, filled);
    release_message(entry);
}

void CommandData::release_message(CommandEntry& entry) {
    if (std::exchange(entry.holds_message, false)) nic_.release(qp_, entry.token);
}

void CommandData::release_page(CommandEntry& entry) {
    if (entry.page != nullptr) pages_->give(std::move(entry.page));
    if (std::exchange(entry.has_page, false)) admission_.give_staging(kInCapsuleBytes);
}

}  // namespace gnstor::nvmf
