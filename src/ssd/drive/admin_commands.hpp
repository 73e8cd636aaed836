// admin_commands.hpp: the admin commands that every device serves alike: those of AdminHandler, asynchronous
// event requests (held until there is an event), Abort (of held event requests only), and controller reset.
//
// A host reads only its own controller's error log, because entries contain addresses, which name volumes and
// clients of other hosts; the array's admin host reads a log of all controllers. The device itself handles
// vendor commands and decides who may set arbitration. Completions go to a sink by tag: at once or, for an
// event request, on an event, on controller reset or when its queue closes. One thread: the device's.
#pragma once

#include "ssd/drive/admin.hpp"
#include "ssd/drive/served_queue.hpp"

#include <cstdint>
#include <map>
#include <memory>

namespace gnstor::ssd {

class AdminCommands {
  public:
    /// `sink` outlives this object.
    AdminCommands(DriveFacts facts, deengine::CompletionSink& sink)
        : handler_(std::move(facts)), sink_(sink) {}

    /// Checks the flags of a fetched admin command and executes it.
    void take(ServedQueue& q, std::uint32_t slot, const deengine::EngineCounters& counters);
    /// Call before the queue's first command: the queue gets the error log of its controller; an admin queue
    /// creates that log.
    void join(ServedQueue& q);
    /// Call when the queue closes: aborts its event requests, since no event can reach its host any more.
    void leave(ServedQueue& q);
    /// The namespace has changed: sends a notice to the host of this admin queue if the host enabled it, now
    /// or with its next event request.
    void namespace_changed(ServedQueue& q);
    /// Adds a failed command to its controller's error log, and to the log of all controllers.
    void note_error(const ServedQueue& q, std::uint32_t slot, nvme::Status status);
    [[nodiscard]] AdminHandler& handler() { return handler_; }

  private:
    void reset(ServedQueue& q, std::uint32_t slot);
    void hold_event_request(ServedQueue& q, std::uint32_t slot);
    void give_notice(ServedQueue& q, std::uint32_t slot);
    void abort(ServedQueue& q, std::uint32_t slot);

    AdminHandler handler_;
    ErrorLog all_errors_;  // of all controllers, for the array's admin host
    std::map<std::uint16_t, std::shared_ptr<ErrorLog>> errors_;  // by controller, while it has an admin queue
    deengine::CompletionSink& sink_;
};

}  // namespace gnstor::ssd
