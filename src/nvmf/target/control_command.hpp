// control_command.hpp: a command of a connected queue that the control thread answers, on its way there and
// back: Authentication Send, Authentication Receive, HOST SET.
//
// At most one at a time. ask() and take_reply() belong to the reactor's thread, reply() to the control
// thread; the request does not change between ask() and take_reply(), so both may read it.
#pragma once

#include <gnstor/nvme/command.hpp>
#include <gnstor/nvme/status.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace gnstor::nvmf {

class ControlCommand {
  public:
    struct Request {
        nvme::Command command;
        std::vector<std::byte> data;  ///< of a command to the controller
        std::uint32_t room = 0;       ///< of a command to the host: bytes that the answer may have
    };
    struct Reply {
        nvme::Status status = nvme::Status::kSuccess;
        std::vector<std::byte> data;  ///< at most `room`
        bool authenticated = false;   ///< with this command the queue has authenticated
    };

    // Reactor.
    /// Then the control thread must be told. `entry`: kept until the reply, if the answer has data.
    void ask(Request request, std::optional<std::uint32_t> entry, std::uint32_t invalidate_key) {
        request_ = std::move(request);
        entry_ = entry;
        invalidate_key_ = invalidate_key;
        pending_ = true;
    }
    [[nodiscard]] bool pending() const { return pending_; }
    /// The reply if there is one: the command has ended. Null: none yet, or nothing was asked.
    [[nodiscard]] const Reply* take_reply() {
        // Acquire: pairs with reply(); the reply's fields are visible.
        if (!pending_ || !replied_.exchange(false, std::memory_order_acquire)) return nullptr;
        pending_ = false;
        return &reply_;
    }
    [[nodiscard]] std::optional<std::uint32_t> entry() const { return entry_; }
    [[nodiscard]] std::uint16_t command_id() const { return request_.command.command_id; }
    [[nodiscard]] std::uint32_t invalidate_key() const { return invalidate_key_; }

    // Control thread, after ask().
    [[nodiscard]] const Request& request() const { return request_; }
    void reply(Reply reply) {
        reply_ = std::move(reply);
        replied_.store(true, std::memory_order_release);  // pairs with the exchange in take_reply()
    }

  private:
    Request request_{};
    std::optional<std::uint32_t> entry_;
    std::uint32_t invalidate_key_ = 0;
    bool pending_ = false;
    Reply reply_;
    std::atomic<bool> replied_{false};  // control -> reactor, releases reply_
};

}  // namespace gnstor::nvmf
