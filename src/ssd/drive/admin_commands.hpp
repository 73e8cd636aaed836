// admin_commands.hpp: the admin commands that every device serves alike: what AdminHandler answers, event
// requests, which are held, Abort, which finds those alone, and the reset of their controller.
//
// The error log that a host reads is its controller's: addresses name volumes and clients, and those of
// others are none of its business. The admin host reads that of all. Vendor commands and who may set
// arbitration are the device's own. Answers go to a sink by tag, at once or, for an event request, when there
// is an event, its controller is reset or its queue closes. One thread: the device's.
#pragma once

#include "ssd/drive/admin.hpp"
#include "ssd/queues/served_queue.hpp"

#include <cstdint>
#include <map>
#include <memory>

namespace gnstor::ssd {

class AdminCommands {
  public:
    /// `sink` outlives it.
    AdminCommands(DriveFacts facts, deengine::CompletionSink& sink)
        : handler_(std::move(facts)), sink_(sink) {}

    /// A fetched command of an admin queue, flags and all.
    void take(ServedQueue& q, std::uint32_t slot, const deengine::EngineCounters& counters);
    /// Before its first command: the queue shares the error log of its controller, which begins with the
    /// admin queue.
    void join(ServedQueue& q);
    /// The queue closes: nothing will happen any more that its host could be told of.
    void leave(ServedQueue& q);
    /// Something of the namespace is other than it was: the host of this admin queue is told, if it wants to
    /// be, now or when it asks for events.
    void namespace_changed(ServedQueue& q);
    /// For the error logs: its controller's, and the one of everybody's errors.
    void note_error(const ServedQueue& q, std::uint32_t slot, nvme::Status status);
    [[nodiscard]] AdminHandler& handler() { return handler_; }

  private:
    void reset(ServedQueue& q, std::uint32_t slot);
    void hold_event_request(ServedQueue& q, std::uint32_t slot);
    void give_notice(ServedQueue& q, std::uint32_t slot);
    void abort(ServedQueue& q, std::uint32_t slot);

    AdminHandler handler_;
    ErrorLog all_errors_;                                        // what the array's admin host reads
    std::map<std::uint16_t, std::shared_ptr<ErrorLog>> errors_;  // by controller, while it has an admin queue
    deengine::CompletionSink& sink_;
};

}  // namespace gnstor::ssd
