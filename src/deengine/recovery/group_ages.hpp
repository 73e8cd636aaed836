// group_ages.hpp: which durability groups were durable before a cut.
//
// *Newest* is the highest group found. Pages programmed in it or in the group before may be torn or missing,
// and then were never acknowledged; pages of older groups were durable. Numbers are compared modulo 2^32,
// relative to the group in which the loaded checkpoint began. Invariant: newest never falls. Pure; lives
// during one mount.
#pragma once

#include <cstdint>

namespace gnstor::deengine {

class GroupAges {
  public:
    explicit GroupAges(bool only_killed) : only_killed_(only_killed) {}

    /// The loaded checkpoint began in this group; before the first saw().
    void set_begin(std::uint32_t group) { begin_ = group; }
    void saw(std::uint32_t group) {
        const std::int64_t since = since_begin(group);
        if (since > newest_ && since <= (1 << 30)) newest_ = since;
    }
    [[nodiscard]] std::uint32_t newest() const { return begin_ + static_cast<std::uint32_t>(newest_); }
    [[nodiscard]] std::int64_t since_begin(std::uint32_t group) const {
        return static_cast<std::int32_t>(group - begin_);
    }
    /// Not of the last two groups, so it was durable.
    [[nodiscard]] bool is_old(std::uint32_t group) const { return since_begin(group) <= newest_ - 2; }
    /// All that was programmed in it is present: it is old, or is not the group in which a process of this
    /// boot was killed. (An interrupted recovery programs in that group, too.)
    [[nodiscard]] bool is_whole(std::uint32_t group) const {
        return is_old(group) || (only_killed_ && since_begin(group) < newest_);
    }

  private:
    const bool only_killed_;
    std::uint32_t begin_ = 1;
    std::int64_t newest_ = 0;  ///< counted from begin_
};

}  // namespace gnstor::deengine
