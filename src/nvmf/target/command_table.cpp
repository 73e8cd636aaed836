#include "nvmf/target/command_table.hpp"

namespace gnstor::nvmf {

namespace {

/// How many commands, in quarters of the entries, may overtake a write that still counts as in order. The
/// service units of an untimed drive differ in queue length: this is temporary, and held messages do not make
/// them idle. A timed drive delays writes to their modelled time, and would idle while their messages are
/// held.
constexpr std::uint32_t kOvertakenQuarters = 3;
constexpr std::uint32_t kOvertakenQuartersTimed = 1;

}  // namespace

void CommandTable::set_drive(bool timed) {
    overtaken_most_ = size() / 4 * (timed ? kOvertakenQuartersTimed : kOvertakenQuarters);
}

std::optional<std::uint32_t> CommandTable::find(std::uint16_t command_id) const {
    for (std::uint32_t index = 0; index < size(); ++index)
        if (entries_[index].busy && entries_[index].command_id == command_id) return index;
    return std::nullopt;
}

void CommandTable::silence_event_requests() {
    for (CommandEntry& entry : entries_)
        entry.unanswered = entry.unanswered || (entry.busy && entry.event_request);
}

}  // namespace gnstor::nvmf
