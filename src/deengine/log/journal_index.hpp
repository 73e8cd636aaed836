// journal_index.hpp: where each page of a shard's journal lies, read from the out-of-band records of its
// system units. Recovery only.
//
// A page may be present twice (its first program failed and was repeated): then the one in the unit opened
// later comes first.
#pragma once

#include "deengine/log/journal.hpp"

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace gnstor::deengine {

struct JournalPlace {
    std::uint64_t number;
    PageNumber page;
    std::uint32_t unit_serial;
    std::uint32_t group;
    std::uint32_t oob_crc;
    JournalPage type;
};

class JournalIndex {
  public:
    explicit JournalIndex(Flash& flash) : flash_(flash), page_(nvme::kBlockBytes) {}

    void add(PageNumber page, const PageOob& oob);
    void sort();  ///< after the last add()

    [[nodiscard]] std::span<const JournalPlace> places() const { return places_; }
    [[nodiscard]] bool empty() const { return places_.empty(); }
    [[nodiscard]] std::uint64_t last_number() const { return empty() ? 0 : places_.back().number; }
    /// All places of a number: none, one, or two.
    [[nodiscard]] std::span<const JournalPlace> find(std::uint64_t number) const;

    /// Reads a page and checks it against its record; its header, or null. Valid until the next read.
    const JournalHeader* read(const JournalPlace& place);
    /// Of the page read last.
    [[nodiscard]] std::span<const std::byte> payload() const {
        return std::span(page_).subspan(sizeof(JournalHeader));
    }
    /// Copies entry `i` of the payload.
    template <class Entry>
    [[nodiscard]] Entry entry(std::size_t i) const {
        Entry e;
        std::memcpy(&e, payload().data() + i * sizeof(Entry), sizeof(e));
        return e;
    }
    /// Entries of this size that the payload can hold: the limit for a header's count.
    template <class Entry>
    static constexpr std::uint32_t most() {
        return kJournalPayload / sizeof(Entry);
    }

  private:
    Flash& flash_;
    std::vector<JournalPlace> places_;
    std::vector<std::byte> page_;
    JournalHeader header_{};
};

}  // namespace gnstor::deengine
