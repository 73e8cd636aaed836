#include "ssd/drive/admin_commands.hpp"

#include "ssd/drive/data_pointer.hpp"

#include <gnstor/nvme/counters_log.hpp>

#include <algorithm>
#include <utility>

namespace gnstor::ssd {

using nvme::AdminOpcode;
using nvme::Command;
using nvme::Status;

void AdminCommands::take(ServedQueue& q, std::uint32_t slot, const deengine::EngineCounters& counters) {
    const Command& command = q.pending[slot].command;
    const std::uint64_t tag = q.tag(slot);
    const Status flags = check_flags(command);
    if (!nvme::ok(flags)) return sink_.on_complete(tag, flags, 0);
    if (command.opcode == static_cast<std::uint8_t>(AdminOpcode::kFabrics)) return reset(q, slot);
    if (command.opcode == static_cast<std::uint8_t>(AdminOpcode::kAsyncEventRequest))
        return hold_event_request(q, slot);
    if (command.opcode == static_cast<std::uint8_t>(AdminOpcode::kAbort)) return abort(q, slot);
    const bool counters_log = command.opcode == static_cast<std::uint8_t>(AdminOpcode::kGetLogPage) &&
                              (command.cdw10 & 0xFFu) == nvme::kCountersLogPage;
    if (counters_log && !q.queue.privileged()) return sink_.on_complete(tag, Status::kInvalidLogPage, 0);
    std::span<std::byte> data;
    const std::uint32_t bytes = AdminHandler::data_bytes(command);
    if (bytes > 0) {
        const Status pointer = data_span(command, bytes, Length::kExact, data);
        if (!nvme::ok(pointer)) return sink_.on_complete(tag, pointer, 0);
    }
    const ErrorLog& errors = q.queue.privileged() ? all_errors_ : *q.errors;
    const AdminReply reply = handler_.handle(command, q.features, data, counters, errors);
    sink_.on_complete(tag, reply.status, reply.dw0);
}

void AdminCommands::join(ServedQueue& q) {
    if (q.queue.is_admin()) errors_.try_emplace(q.controller, std::make_shared<ErrorLog>());
    const auto found = errors_.find(q.controller);
    if (found != errors_.end()) q.errors = found->second;
}

void AdminCommands::leave(ServedQueue& q) {
    for (const std::uint32_t slot : q.held) sink_.on_complete(q.tag(slot), Status::kAborted, 0);
    q.held.clear();
    if (q.queue.is_admin()) errors_.erase(q.controller);
}

/// The target offload forwards one fabrics command: the Property Set that disables the controller. The
/// offload tells the host nothing of the event requests that end here, so they are not logged as errors.
void AdminCommands::reset(ServedQueue& q, std::uint32_t slot) {
    for (const std::uint32_t held : q.held) sink_.on_complete(q.tag(held), Status::kSuccess, 0);
    q.held.clear();
    q.features = {};
    sink_.on_complete(q.tag(slot), Status::kSuccess, 0);
}

void AdminCommands::note_error(const ServedQueue& q, std::uint32_t slot, Status status) {
    const Command& command = q.pending[slot].command;
    all_errors_.add(q.queue.id(), command, status);
    if (q.errors != nullptr) q.errors->add(q.queue.id(), command, status);
}

void AdminCommands::namespace_changed(ServedQueue& q) {
    if (!q.queue.is_admin() || (q.features.async_events & nvme::kAsyncNamespaceAttribute) == 0) return;
    // One notice until the host has read the log page of changed namespaces (Base 2.0, 5.2).
    if (std::exchange(q.features.namespace_changed, true)) return;
    q.features.notice_due = q.held.empty();
    if (q.held.empty()) return;
    const std::uint32_t slot = q.held.back();
    q.held.pop_back();
    give_notice(q, slot);
}

void AdminCommands::give_notice(ServedQueue& q, std::uint32_t slot) {
    constexpr std::uint8_t kNotice = 2, kNamespaceAttribute = 0;
    const nvme::AsyncEvent event{kNotice, kNamespaceAttribute,
                                 static_cast<std::uint8_t>(nvme::LogPage::kChangedNamespaces)};
    sink_.on_complete(q.tag(slot), Status::kSuccess, event.encode());
}

void AdminCommands::hold_event_request(ServedQueue& q, std::uint32_t slot) {
    if (std::exchange(q.features.notice_due, false)) return give_notice(q, slot);
    if (q.held.size() >= kAsyncEventRequests)
        return sink_.on_complete(q.tag(slot), Status::kAsyncEventLimitExceeded, 0);
    q.held.push_back(slot);
}

/// DW0 bit 0: 0 if the command was aborted. Only a held event request can be aborted: all other commands run
/// to completion.
void AdminCommands::abort(ServedQueue& q, std::uint32_t slot) {
    const Command& command = q.pending[slot].command;
    const auto sq_id = static_cast<std::uint16_t>(command.cdw10);
    const auto command_id = static_cast<std::uint16_t>(command.cdw10 >> 16);
    const auto it = std::find_if(q.held.begin(), q.held.end(), [&](std::uint32_t held) {
        return sq_id == 0 && q.pending[held].command.command_id == command_id;
    });
    if (it == q.held.end()) return sink_.on_complete(q.tag(slot), Status::kSuccess, 1);
    sink_.on_complete(q.tag(*it), Status::kAborted, 0);
    q.held.erase(it);
    sink_.on_complete(q.tag(slot), Status::kSuccess, 0);
}

}  // namespace gnstor::ssd
