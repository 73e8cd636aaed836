// connection_data.cpp: makes the data of a connection's commands reachable: in the message, through a window,
// or in a staging page; and the commands that wait until the NIC has fetched it.
#include "nvmf/target/connection.hpp"

#include <gnstor/base/log.hpp>
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
static_assert(sizeof(nvme::MapSet) <= kInCapsuleBytes && sizeof(nvme::VolumeRecord) <= kInCapsuleBytes &&
                  256 * sizeof(nvme::DsmRange) <= kInCapsuleBytes,
              "command data that the drive interprets must fit one staging page");
bool is_block_data(QueueKind kind, const nvme::Command& command) {
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
bool TargetConnection::too_long(const Capsule& capsule) const {
    return capsule.direction == Direction::kToDrive && capsule.bytes > kInCapsuleBytes &&
           !is_block_data(kind(), capsule.command);
}

/// Bytes of staging memory that the command must still take; 0: it has them already, or needs none. Records
/// in the slot what they are for.
std::uint32_t TargetConnection::staging_need(Slot& slot, const Capsule& capsule, const MessageBytes& bytes) {
    if (capsule.payload == Payload::kNone) return 0;
    const bool blocks = is_block_data(kind(), capsule.command);
    slot.carries_blocks = capsule.payload == Payload::kInCapsule && blocks;
    if (slot.carries_blocks && bytes.contiguous(capsule.offset, capsule.bytes) != nullptr) {
        slot.has_page =
            writes_in_turn_ < kInTurnProven && staging_->budget.take_now(staging_member_, kInCapsuleBytes);
        slot.in_place = !slot.has_page;
        return 0;
    }
    if (capsule.payload == Payload::kKeyed && too_long(capsule)) return 0;
    slot.has_page = capsule.payload == Payload::kInCapsule || !blocks || kind() == QueueKind::kAdmin;
    const std::uint32_t page = slot.has_page ? kInCapsuleBytes : 0;
    return page +
           (capsule.payload == Payload::kKeyed && stages_windows_ ? rdma::window_room(capsule.bytes) : 0);
}

/// Makes the data reachable for the drive and sets `data`: in the message, the host's memory or the staging
/// page. Data that is being fetched may not have arrived yet: see window.ready.
Status TargetConnection::place(Slot& slot, const Capsule& capsule, const MessageBytes& bytes,
                               std::byte*& data) {
    if (slot.in_place) {
        // The drive only reads what it writes to flash.
        data = const_cast<std::byte*>(bytes.contiguous(capsule.offset, capsule.bytes));
        return Status::kSuccess;
    }
    if (slot.carries_blocks) counters_.staged_writes.add();
    if (capsule.payload == Payload::kInCapsule) {
        data = page(slot);
        bytes.copy(capsule.offset, capsule.bytes, data);
    }
    slot.bytes = capsule.bytes;
    const bool to_drive = capsule.direction == Direction::kToDrive;
    if (capsule.payload == Payload::kKeyed && !too_long(capsule)) {
        const auto use = to_drive ? rdma::WindowUse::kRead : rdma::WindowUse::kWrite;
        if (!nic_.open_window(qp_, capsule.address, capsule.bytes, capsule.key, use, slot.window)) {
            if (stages_windows_) give_staging(rdma::window_room(capsule.bytes));
            return Status::kDataTransferError;
        }
        slot.holds_window = true;
        slot.fills_window = !to_drive;
        if (!to_drive)
            data = where_to_answer(slot, capsule);
        else if (slot.window.ready)
            data = take_fetched(slot, capsule);
    }
    // The message is not read any more.
    if (std::exchange(slot.holds_message, false)) nic_.release(qp_, slot.token);
    return Status::kSuccess;
}

/// Address at which the drive writes the data that the host asked for.
std::byte* TargetConnection::where_to_answer(Slot& slot, const Capsule& capsule) {
    if (kind() == QueueKind::kIo) return slot.window.data;
    slot.completes_identify =
        slot.opcode == static_cast<std::uint8_t>(nvme::AdminOpcode::kIdentify) &&
        (capsule.command.cdw10 & 0xFFu) == static_cast<std::uint8_t>(nvme::IdentifyCns::kController);
    slot.completes_counters = is_counters_log(capsule);
    if (slot.completes_identify || slot.completes_counters) return page(slot);
    // An admin command may return less than the host has room for. The rest must not expose what NIC memory
    // held before.
    clear_of_peer(slot.window.data, slot.window.bytes);
    return slot.window.data;
}

/// The NIC has fetched the data. Data that is interpreted rather than stored is copied to a page, which it
/// fits (too_long).
std::byte* TargetConnection::take_fetched(Slot& slot, const Capsule& capsule) {
    if (is_block_data(kind(), capsule.command)) return slot.window.data;
    copy_from_peer(page(slot), slot.window.data, capsule.bytes);
    nic_.close_window(qp_, slot.window);
    slot.holds_window = false;
    return page(slot);
}

void TargetConnection::await_window(std::uint32_t index, const Capsule& capsule) {
    park(index, capsule);
    awaited_.push_back(index);
}

void TargetConnection::on_window_ready(rdma::QpNumber, std::uint64_t cookie, bool good) {
    const auto at = std::ranges::find_if(
        awaited_, [&](std::uint32_t index) { return slots_[index].window.cookie == cookie; });
    if (at == awaited_.end()) {
        log_error("queue pair {:#x}: the NIC reports data in a memory window that no command waits for", qp_);
        return;
    }
    const std::uint32_t index = *at;
    awaited_.erase(at);
    const Capsule capsule = parked_[index].capsule;
    if (good && state_ < State::kDraining)
        return hand_over(index, capsule, take_fetched(slots_[index], capsule));
    give_back(index, capsule, Status::kDataTransferError);
}

}  // namespace gnstor::nvmf
