// admin_commands.hpp: the admin commands that every device serves alike: what AdminHandler answers, event
// requests, which are held, and Abort, which finds those alone.
//
// Vendor commands and who may set arbitration are the device's own. Answers go to a sink by tag, at once or,
// for an event request, when there is an event or its queue closes. One thread: the device's.
#pragma once

#include "ssd/admin.hpp"
#include "ssd/served_queue.hpp"

namespace gnstor::ssd {

class AdminCommands {
  public:
    /// `sink` outlives it.
    AdminCommands(DriveFacts facts, deengine::CompletionSink& sink)
        : handler_(std::move(facts)), sink_(sink) {}

    /// A fetched command of an admin queue, flags and all.
    void take(ServedQueue& q, std::uint32_t slot, const deengine::EngineCounters& counters);
    /// The queue closes: nothing will happen any more that its host could be told of.
    void give_back_events(ServedQueue& q);
    /// Something of the namespace is other than it was: the host of this admin queue is told, if it wants to
    /// be, now or when it asks for events.
    void namespace_changed(ServedQueue& q);
    /// For the error log.
    void note_error(std::uint16_t sq_id, const nvme::Command& command, nvme::Status status) {
        errors_.add(sq_id, command, status);
    }
    [[nodiscard]] AdminHandler& handler() { return handler_; }

  private:
    void hold_event_request(ServedQueue& q, std::uint32_t slot);
    void give_notice(ServedQueue& q, std::uint32_t slot);
    void abort(ServedQueue& q, std::uint32_t slot);

    AdminHandler handler_;
    ErrorLog errors_;
    deengine::CompletionSink& sink_;
};

}  // namespace gnstor::ssd
