// copy_windows.hpp: the ranges of blocks into which another drive's versions are being copied, and with which order
// each of their blocks was trimmed since the range was opened. docs/array.md, rule 12; gnstor/nvme/copy.hpp says why.
//
// Invariants
//   * an open window knows the tombstones that its blocks had when it was opened, and every later trim of them before
//   that is answered; it keeps these orders while it is open, even when the tombstones are dropped;
//   * a window's numbers begin at the time of a mount's first one, so that a delayed COPY WRITE does not meet a window
//   that was opened after the donor was read.
// In memory only: after a restart the copier opens its windows again. Model: tests/model/rebuild_window.pml. One owner
// thread.
#pragma once

#include <gnstor/base/hash.hpp>
#include <gnstor/nvme/copy.hpp>

#include "deengine/map/tombstones.hpp"
#include "deengine/mutation.hpp"
#include "deengine/shard/shard.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

namespace gnstor::deengine {

class CopyWindows {
  public:
    static constexpr std::size_t kWindows = 4;

    struct Window {
        std::uint32_t number = 0;  ///< 0: not open; never kCopyClosed
        nvme::VolumeId volume = 0;
        nvme::BlockAddress first = 0;
        std::uint32_t blocks = 0;
        nvme::Epoch epoch = 0;  ///< of the volume when the window was opened: what is older is closed here
        /// By block: the newest trim that the window knows of; all zero: none.
        std::array<WriteOrder, nvme::kCopyBlocksMax> trimmed{};
    };

    /// Opens a window over the command's blocks, at most nvme::kCopyBlocksMax; returns its number, not 0.
    std::uint32_t open(const ShardCommand& c, const Tombstones& tombstones, std::uint64_t now_ns,
                       Mutation mutation) {
        if (!any_) last_ = static_cast<std::uint32_t>(mix64(now_ns));
        any_ = true;
        ++last_;
        while (last_ == 0 || last_ == nvme::kCopyClosed) ++last_;
        Window& w = windows_[next_++ % kWindows];
        w = {last_, c.volume, c.first, c.blocks, c.volume_epoch, {}};
        for (std::uint32_t i = 0; i < c.blocks && mutation != Mutation::kCopyWindowEmpty; ++i)
            w.trimmed[i] = tombstones.find(make_key(c.volume, c.first + i)).value_or(WriteOrder{});
        return last_;
    }
    void note_trim(nvme::VolumeId volume, nvme::BlockAddress first, std::uint32_t blocks,
                   const WriteOrder& order) {
        if (!any_) [[likely]]
            return;
        const std::uint64_t end = std::uint64_t{first} + blocks;
        for (Window& w : windows_) {
            if (w.number == 0 || w.volume != volume) continue;
            for (std::uint32_t i = 0; i < w.blocks; ++i)
                if (const std::uint64_t block = std::uint64_t{w.first} + i; block >= first && block < end)
                    w.trimmed[i] = std::max(w.trimmed[i], order);
        }
    }
    /// Null: no such window is open.
    [[nodiscard]] const Window* find(std::uint32_t number, nvme::VolumeId volume, nvme::BlockAddress first,
                                     std::uint32_t blocks) const {
        for (const Window& w : windows_)
            if (number != 0 && w.number == number && w.volume == volume && w.first == first &&
                w.blocks == blocks)
                return &w;
        return nullptr;
    }
    void forget(nvme::VolumeId volume) {
        for (Window& w : windows_)
            if (w.volume == volume) w = {};
    }

  private:
    std::array<Window, kWindows> windows_{};
    std::size_t next_ = 0;
    std::uint32_t last_ = 0;
    bool any_ = false;  ///< a window was opened since the mount
};

}  // namespace gnstor::deengine
