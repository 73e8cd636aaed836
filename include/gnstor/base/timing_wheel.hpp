// timing_wheel.hpp: a hierarchical timing wheel: entries with a due time in nanoseconds, given back in order
// of time.
//
// Pure logic: time is an argument. Four levels of 256 slots hold the entries within 2^32 ns of the cursor,
// each slot a list; entries further away wait in a separate list and are distributed when their 2^32 ns
// begin. An entry moves at most once per level, so that adding and taking cost the same with ten entries as
// with a million.
// Invariants
//   * nothing is given before it is due, and due entries are given in order of time; of one time, in the
//     order added;
//   * an entry of level L has the same number above that level as the cursor, and a slot of a higher number
//     than the cursor's (level 0: not a lower one);
//   * memory is allocated by reserve(), and by add() only beyond what was reserved.
// One owner thread. Varghese and Lauck, "Hashed and hierarchical timing wheels", SOSP 1987.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace gnstor {

template <class T>
class TimingWheel {
  public:
    TimingWheel() { clear(); }

    /// Allocates memory for `entries` entries, up to which add() allocates none.
    void reserve(std::size_t entries) { nodes_.reserve(entries); }
    [[nodiscard]] std::size_t size() const { return size_; }
    [[nodiscard]] bool empty() const { return size_ == 0; }
    /// A time before which nothing is due; ~0 when empty. Cheap.
    [[nodiscard]] std::uint64_t next_ns() const { return next_ns_; }

    /// `now_ns` never goes back, here and in pop(). An entry with an earlier `due_ns` is due at `now_ns`.
    void add(std::uint64_t now_ns, std::uint64_t due_ns, const T& value) {
        if (size_ == 0) cursor_ = std::max(cursor_, now_ns);
        const std::uint64_t due = std::max(due_ns, now_ns);  // not before the cursor: that is never after now
        const std::uint32_t node = take_node(due, value);
        place(node);
        next_ns_ = std::min(next_ns_, due);
        ++size_;
    }

    /// The next entry that is due at `now_ns`. False: none is.
    [[nodiscard]] bool pop(std::uint64_t now_ns, T& value) {
        while (next_ns_ <= now_ns && size_ != 0) {
            const std::uint32_t slot = first_slot(0, index(0, cursor_));
            if (slot == kSlots) {
                if (!open_next(now_ns)) return false;
                continue;
            }
            const std::uint64_t due = (cursor_ & ~std::uint64_t{kSlots - 1}) | slot;
            next_ns_ = due;
            if (due > now_ns) return false;
            cursor_ = due;
            value = take_first(slot);
            return true;
        }
        return false;
    }

    /// Removes the entries that `matches`, due or not, and passes them to `out`, in no order. Visits all
    /// entries.
    template <class Matches, class Out>
    void take_if(Matches&& matches, Out&& out) {
        for (std::uint32_t level = 0; level < kLevels; ++level)
            for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
                List& list = slots_[level][slot];
                if (list.head == kNone) continue;
                filter(list, matches, out);
                if (list.head == kNone) unmark(level, slot);
            }
        filter(far_, matches, out);
        if (size_ == 0) next_ns_ = kNever;
    }

    void clear() {
        nodes_.clear();
        free_ = kNone;
        size_ = 0;
        next_ns_ = kNever;
        far_ = List{};
        for (auto& level : slots_) level.fill(List{});
        for (auto& level : marks_) level.fill(0);
    }

  private:
    static constexpr std::uint32_t kLevels = 4;
    static constexpr std::uint32_t kBits = 8;
    static constexpr std::uint32_t kSlots = 1u << kBits;
    static constexpr std::uint32_t kNone = ~0u;
    static constexpr std::uint64_t kNever = ~0ull;

    struct Node {
        std::uint64_t due_ns;
        std::uint32_t next;
        T value;
    };
    struct List {
        std::uint32_t head = kNone, tail = kNone;
    };

    static std::uint32_t index(std::uint32_t level, std::uint64_t time) {
        return static_cast<std::uint32_t>(time >> (level * kBits)) & (kSlots - 1);
    }
    /// The first slot of `level`, from `from` on, that holds an entry; kSlots: none does.
    [[nodiscard]] std::uint32_t first_slot(std::uint32_t level, std::uint32_t from) const {
        for (std::uint32_t word = from / 64; word < kSlots / 64; ++word) {
            std::uint64_t marks = marks_[level][word];
            if (word == from / 64) marks &= ~std::uint64_t{0} << (from % 64);
            if (marks != 0) return word * 64 + static_cast<std::uint32_t>(std::countr_zero(marks));
        }
        return kSlots;
    }
    void unmark(std::uint32_t level, std::uint32_t slot) {
        marks_[level][slot / 64] &= ~(std::uint64_t{1} << (slot % 64));
    }

    std::uint32_t take_node(std::uint64_t due, const T& value) {
        if (free_ == kNone) {
            nodes_.push_back(Node{due, kNone, value});
            return static_cast<std::uint32_t>(nodes_.size() - 1);
        }
        const std::uint32_t node = free_;
        free_ = nodes_[node].next;
        nodes_[node] = Node{due, kNone, value};
        return node;
    }
    T take_first(std::uint32_t slot) {
        List& list = slots_[0][slot];
        const std::uint32_t node = list.head;
        list.head = nodes_[node].next;
        if (list.head == kNone) {
            list.tail = kNone;
            unmark(0, slot);
        }
        give_node(node);
        return nodes_[node].value;
    }
    void give_node(std::uint32_t node) {
        nodes_[node].next = free_;
        free_ = node;
        if (--size_ == 0) next_ns_ = kNever;
    }

    void append(List& list, std::uint32_t node) {
        nodes_[node].next = kNone;
        if (list.head == kNone)
            list.head = node;
        else
            nodes_[list.tail].next = node;
        list.tail = node;
    }
    /// Files an entry by the highest bit in which its time differs from the cursor.
    void place(std::uint32_t node) {
        const std::uint64_t due = nodes_[node].due_ns;
        const std::uint64_t differs = due ^ cursor_;
        const auto level =
            differs == 0 ? 0u : (63u - static_cast<std::uint32_t>(std::countl_zero(differs))) / kBits;
        if (level >= kLevels) return append(far_, node);
        const std::uint32_t slot = index(level, due);
        append(slots_[level][slot], node);
        marks_[level][slot / 64] |= std::uint64_t{1} << (slot % 64);
    }
    void spread(List list) {
        for (std::uint32_t node = list.head; node != kNone;) {
            const std::uint32_t next = nodes_[node].next;
            place(node);
            node = next;
        }
    }

    /// Level 0 is empty from the cursor on: moves the cursor to the beginning of the next slot with entries
    /// and distributes these over the levels below. False: that slot begins after `now_ns` (next_ns_ says
    /// when).
    bool open_next(std::uint64_t now_ns) {
        for (std::uint32_t level = 1; level < kLevels; ++level) {
            const std::uint32_t slot = first_slot(level, index(level, cursor_) + 1);
            if (slot == kSlots) continue;
            const std::uint64_t above = ~std::uint64_t{0} << ((level + 1) * kBits);
            next_ns_ = (cursor_ & above) | (std::uint64_t{slot} << (level * kBits));
            if (next_ns_ > now_ns) return false;
            cursor_ = next_ns_;
            const List list = std::exchange(slots_[level][slot], List{});
            unmark(level, slot);
            spread(list);
            return true;
        }
        return open_far(now_ns);
    }
    bool open_far(std::uint64_t now_ns) {
        std::uint64_t least = kNever;
        for (std::uint32_t node = far_.head; node != kNone; node = nodes_[node].next)
            least = std::min(least, nodes_[node].due_ns);
        next_ns_ = least & (~std::uint64_t{0} << (kLevels * kBits));
        if (next_ns_ > now_ns) return false;
        cursor_ = next_ns_;
        spread(std::exchange(far_, List{}));  // entries still too far away return to it, in their order
        return true;
    }

    template <class Matches, class Out>
    void filter(List& list, Matches& matches, Out& out) {
        const std::uint32_t head = std::exchange(list, List{}).head;
        for (std::uint32_t node = head; node != kNone;) {
            const std::uint32_t next = nodes_[node].next;
            if (matches(nodes_[node].value)) {
                out(nodes_[node].value);
                give_node(node);
            } else {
                append(list, node);
            }
            node = next;
        }
    }

    std::vector<Node> nodes_;
    std::uint32_t free_ = kNone;
    std::size_t size_ = 0;
    std::uint64_t cursor_ = 0;        ///< everything before it was given
    std::uint64_t next_ns_ = kNever;  ///< nothing is due before it
    List far_;
    std::array<std::array<List, kSlots>, kLevels> slots_;
    std::array<std::array<std::uint64_t, kSlots / 64>, kLevels> marks_;
};

}  // namespace gnstor
