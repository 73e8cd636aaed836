// command_table.hpp: the outstanding commands of one queue pair: an entry for each, their command ids, and
// how nearly in order the drive completes their writes. Pure.
//
// Invariants
//   * at most `entries` commands are outstanding, each with its own id; the owner refuses one more;
//   * a command takes an entry before it waits or goes to the drive, and returns it before its response is
//     sent;
//   * an entry's flags say what it holds: what is held is returned with the entry.
// No allocation after construction. One thread at a time.
#pragma once

#include "nvmf/protocol/capsule.hpp"
#include "nvmf/protocol/id_set.hpp"
#include "rdma/nic/nic.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace gnstor::nvmf {

struct CommandEntry {
    rdma::Window window{};
    std::unique_ptr<std::byte[]> page;
    std::uint64_t token = 0;
    std::uint32_t invalidate_key = 0;
    std::uint32_t bytes = 0;     ///< of data; some admin answers are copied from the page to the window
    std::uint64_t position = 0;  ///< number of completions before its own if the drive completes in order
    std::uint16_t command_id = 0;
    std::uint8_t opcode = 0;
    bool carries_blocks = false;  ///< a write with its payload in the capsule
    bool busy = false;
    bool in_place = false;   ///< the drive reads its payload from the message
    bool has_page = false;   ///< the budget counts a page for it; `page` is taken on first use
    bool has_place = false;  ///< the budget of commands at the drive counts it
    bool holds_message = false;
    bool holds_window = false;
    bool fills_window = false;
    bool completes_identify = false;
    bool completes_counters = false;
    bool event_request = false;  ///< ends only with the queue or a reset: draining does not wait for it
    bool unanswered = false;     ///< the controller was reset: no response is sent
};

class CommandTable {
  public:
    explicit CommandTable(std::uint32_t entries) : entries_(entries), ids_(entries) {
        free_.reserve(entries);
        for (std::uint32_t i = entries; i > 0; --i) free_.push_back(i - 1);
    }

    // Command ids.
    [[nodiscard]] bool full() const { return outstanding_ >= entries_.size(); }
    [[nodiscard]] bool is_outstanding(std::uint16_t command_id) const { return ids_.has(command_id); }
    /// The command has arrived: not full(), and its id is not outstanding.
    void begin(std::uint16_t command_id) {
        ids_.toggle(command_id);
        ++outstanding_;
    }
    /// The command is answered, or will not be.
    void end(std::uint16_t command_id) {
        ids_.toggle(command_id);
        --outstanding_;
    }

    // Entries, by index.
    /// A free entry for a command that has begun and has none yet: so there is one.
    [[nodiscard]] std::uint32_t take(const Capsule& capsule) {
        const std::uint32_t index = free_.back();
        free_.pop_back();
        CommandEntry& entry = entries_[index];
        entry = CommandEntry{};
        entry.busy = true;
        entry.command_id = capsule.command.command_id;
        entry.opcode = capsule.command.opcode;
        entry.invalidate_key = capsule.invalidate_key;
        return index;
    }
    void give(std::uint32_t index) {
        entries_[index].busy = false;
        free_.push_back(index);
    }
    [[nodiscard]] CommandEntry& operator[](std::uint32_t index) { return entries_[index]; }
    [[nodiscard]] const CommandEntry& operator[](std::uint32_t index) const { return entries_[index]; }
    [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(entries_.size()); }
    [[nodiscard]] bool is_busy(std::uint32_t index) const { return index < size() && entries_[index].busy; }
    /// The entry of an outstanding command that has one.
    [[nodiscard]] std::optional<std::uint32_t> find(std::uint16_t command_id) const;
    /// Asynchronous event requests that are outstanding end without a response.
    void silence_event_requests();

    // Commands at the drive.
    void to_drive(CommandEntry& entry, bool event_request) {
        entry.event_request = event_request;
        entry.position = completed_ + at_drive_;
        ++at_drive_;
        if (event_request) ++event_requests_;
    }
    /// The drive has completed the command. Judges the order (writes_in_order).
    void completed(const CommandEntry& entry) {
        --at_drive_;
        if (entry.event_request) --event_requests_;
        const std::uint64_t overtaken = completed_ > entry.position ? completed_ - entry.position : 0;
        ++completed_;
        if (!entry.carries_blocks) return;
        if (overtaken > overtaken_most_)
            writes_in_order_ = 0;
        else if (writes_in_order_ < kInOrderProven)
            ++writes_in_order_;
    }
    [[nodiscard]] bool any_at_drive() const { return at_drive_ > 0; }
    /// The drive holds no command but event requests, which end with its queue.
    [[nodiscard]] bool drained() const { return at_drive_ == event_requests_; }

    /// A timed drive completes writes at their modelled time (overtaken_most in command_table.cpp).
    void set_drive(bool timed);
    /// Whether the drive completes in-capsule writes nearly in order, so that their messages are held
    /// briefly.
    [[nodiscard]] bool writes_in_order() const { return writes_in_order_ >= kInOrderProven; }

  private:
    /// Writes in a row that were not overtaken, before payload is read in place.
    static constexpr std::uint32_t kInOrderProven = 256;

    std::vector<CommandEntry> entries_;
    std::vector<std::uint32_t> free_;
    IdSet ids_;
    std::uint32_t outstanding_ = 0;
    std::uint32_t at_drive_ = 0;
    std::uint32_t event_requests_ = 0;  // of those at the drive: asynchronous event requests
    std::uint32_t overtaken_most_ = 0;  // commands that may overtake a write that counts as in order
    std::uint32_t writes_in_order_ = 0;
    std::uint64_t completed_ = 0;
};

}  // namespace gnstor::nvmf
