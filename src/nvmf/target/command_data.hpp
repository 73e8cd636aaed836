// command_data.hpp: makes the data of a connection's commands reachable for the drive: in the message,
// through a window of the NIC, or in a staging page.
//
// Invariants
//   * a message is held only while the drive reads payload from it in place, or while its command waits for
//     staging memory; a window only while the drive may access it, or while the NIC fills it;
//   * payload in a capsule for which there is no page is read in place;
//   * a window for writing is closed as filled only if its command succeeded.
//
// A held message delays the send completions of the host's later entries, and with them room for new ones. So
// payload is read in place only while the drive completes writes nearly in order: once later commands
// overtake a write by far, payload is copied to staging pages until many writes in a row were not overtaken
// like that (CommandTable::writes_in_order).
//
// The reactor's thread only.
#pragma once

#include "nvmf/protocol/capsule.hpp"
#include "nvmf/target/admission.hpp"
#include "nvmf/target/command_table.hpp"
#include "nvmf/target/shared_budget.hpp"
#include "nvmf/target/subsystem.hpp"
#include "rdma/wire/loop/soft_nic.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace gnstor::nvmf {

class CommandData {
  public:
    /// The references must outlive this object.
    CommandData(rdma::SoftNic& nic, QueueKind kind, Admission& admission, ConnectionCounters& counters)
        : nic_(nic), kind_(kind), admission_(admission), counters_(counters) {}
    /// Before the queue pair is connected.
    void attach(rdma::QpNumber qp, StagingPages& pages) {
        qp_ = qp;
        pages_ = &pages;
    }

    /// Bytes of payload outside the capsule, which place() fetches through a window (RDMA READ).
    [[nodiscard]] static std::uint32_t fetch_bytes(const ParsedCapsule& parsed);
    /// Bytes of staging memory that the command must still take; 0: it has them already, or needs none.
    /// Records in the entry what they are for. `writes_in_order`: of the connection's CommandTable.
    [[nodiscard]] std::uint32_t staging_need(CommandEntry& entry, const Capsule& capsule,
                                             const MessageBytes& bytes, bool writes_in_order);
    /// Makes the data reachable for the drive and sets `data`: in the message, the host's memory or the
    /// staging page. Data that is being fetched may not have arrived yet: then the entry's window is not
    /// ready.
    nvme::Status place(CommandEntry& entry, const Capsule& capsule, const MessageBytes& bytes,
                       std::byte*& data);

    /// The command of entry `index` waits until its window is filled.
    void await_window(std::uint32_t index) { awaited_.push_back(index); }
    /// The entry whose window of this cookie is filled, and no longer awaited; none: no entry awaits it.
    [[nodiscard]] std::optional<std::uint32_t> filled(const CommandTable& table, std::uint64_t cookie);
    [[nodiscard]] bool awaits_windows() const { return !awaited_.empty(); }
    /// The NIC has filled the window: address of the data for the drive.
    std::byte* take_fetched(CommandEntry& entry, const Capsule& capsule);

    /// Releases window and message. `filled`: whether the host gets what the drive has written to the window.
    void release(CommandEntry& entry, bool filled);
    void release_message(CommandEntry& entry);
    /// Returns the page, and its staging memory.
    void release_page(CommandEntry& entry);

  private:
    [[nodiscard]] std::byte* page(CommandEntry& entry);
    [[nodiscard]] bool too_long(const Capsule& capsule) const;
    std::byte* where_to_answer(CommandEntry& entry, const Capsule& capsule);

    rdma::SoftNic& nic_;
    const QueueKind kind_;
    Admission& admission_;
    ConnectionCounters& counters_;
    rdma::QpNumber qp_ = 0;
    StagingPages* pages_ = nullptr;
    std::vector<std::uint32_t> awaited_;  // entries whose window is not ready, in the order of opening
};

}  // namespace gnstor::nvmf
