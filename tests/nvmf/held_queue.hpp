// held_queue.hpp: stands between a target and a drive, and keeps the commands of one queue for itself,
// unanswered, until it is told to let go: how many commands are under way on that queue is then nobody's
// luck.
//
// Threads: the target's make and delete queues; hold() and let_go() are the test's, one thread. What is held
// ends with success and without data.
#pragma once

#include "ssd/queues/nvme_device.hpp"

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace gnstor::nvmf {

class HeldQueue final : public ssd::NvmeDevice {
  public:
    /// Queues with this id, whoever makes them, one at a time.
    HeldQueue(ssd::NvmeDevice& device, std::uint16_t id) : device_(device), id_(id) {}

    Result<ssd::NvmeQueue*> create_queue(std::uint16_t id, std::uint32_t depth, nvme::ClientId client,
                                         ssd::Priority priority, bool privileged,
                                         std::uint16_t controller) override {
        if (id != id_) return device_.create_queue(id, depth, client, priority, privileged, controller);
        const std::lock_guard lock(mutex_);
        if (queue_ != nullptr) return error(Errc::kState, "queue {} is held already", id);
        queue_ = std::make_unique<ssd::NvmeQueue>(id, depth, client, priority, privileged);
        return queue_.get();
    }
    Result<void> delete_queue(ssd::NvmeQueue* queue) override {
        const std::lock_guard lock(mutex_);
        if (queue != queue_.get()) return device_.delete_queue(queue);
        queue_.reset();
        held_.clear();
        return {};
    }
    void flush(std::function<void(bool)> done) override { device_.flush(std::move(done)); }
    [[nodiscard]] const std::array<std::uint8_t, 16>& uuid() const override { return device_.uuid(); }
    [[nodiscard]] const std::string& serial() const override { return device_.serial(); }
    [[nodiscard]] bool is_timed() const override { return device_.is_timed(); }
    [[nodiscard]] ssd::Dialect dialect() const override { return device_.dialect(); }

    /// Takes what has come; how many commands are held.
    std::size_t hold() {
        const std::lock_guard lock(mutex_);
        nvme::Command command;
        while (queue_ != nullptr && queue_->fetch(command)) held_.push_back(command.command_id);
        return held_.size();
    }
    void let_go() {
        const std::lock_guard lock(mutex_);
        for (const std::uint16_t command : std::exchange(held_, {})) {
            nvme::Completion done{};
            done.command_id = command;
            done.set_result(nvme::Status::kSuccess);
            queue_->complete(done);
        }
    }

  private:
    ssd::NvmeDevice& device_;
    const std::uint16_t id_;
    std::mutex mutex_;
    std::unique_ptr<ssd::NvmeQueue> queue_;
    std::vector<std::uint16_t> held_;
};

}  // namespace gnstor::nvmf
