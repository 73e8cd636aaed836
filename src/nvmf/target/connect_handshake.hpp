// connect_handshake.hpp: a Connect command on its way from the reactor, which receives it, to the control
// thread, which decides, and the decision on its way back.
//
// At most one at a time. ask() and take_answer() belong to the reactor's thread, answer() to the control
// thread; the request does not change between ask() and take_answer(), so both may read it.
#pragma once

#include "nvmf/protocol/connect.hpp"
#include "nvmf/target/controllers.hpp"
#include "ssd/queues/nvme_device.hpp"

#include <atomic>
#include <cstdint>
#include <utility>

namespace gnstor::nvmf {

struct Subsystem;

class ConnectHandshake {
  public:
    struct Answer {
        ConnectOutcome outcome;
        Subsystem* subsystem = nullptr;  ///< null unless the outcome is success
        ssd::NvmeQueue* queue = nullptr;
    };

    // Reactor.
    /// Then the control thread must be told.
    void ask(ConnectRequest request, std::uint16_t command_id, std::uint32_t invalidate_key) {
        request_ = std::move(request);
        command_id_ = command_id;
        invalidate_key_ = invalidate_key;
        pending_ = true;
    }
    [[nodiscard]] bool pending() const { return pending_; }
    /// The decision if there is one: the handshake has ended. Null: none yet, or nothing was asked.
    [[nodiscard]] const Answer* take_answer() {
        // Acquire: pairs with answer(); outcome, subsystem and queue are visible.
        if (!pending_ || !answered_.exchange(false, std::memory_order_acquire)) return nullptr;
        pending_ = false;
        return &answer_;
    }
    [[nodiscard]] std::uint16_t command_id() const { return command_id_; }
    [[nodiscard]] std::uint32_t invalidate_key() const { return invalidate_key_; }

    // Control thread, after ask().
    [[nodiscard]] const ConnectRequest& request() const { return request_; }
    void answer(const ConnectOutcome& outcome, Subsystem* subsystem, ssd::NvmeQueue* queue) {
        answer_ = {outcome, subsystem, queue};
        answered_.store(true, std::memory_order_release);  // pairs with the exchange in take_answer()
    }

  private:
    ConnectRequest request_;
    std::uint16_t command_id_ = 0;
    std::uint32_t invalidate_key_ = 0;
    bool pending_ = false;
    Answer answer_;
    std::atomic<bool> answered_{false};  // control -> reactor, releases answer_
};

}  // namespace gnstor::nvmf
