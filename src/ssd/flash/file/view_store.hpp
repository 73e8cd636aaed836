// view_store.hpp: a drive's backbone over a store that cannot be written to, because its file system is
// read-only: a view (store_view.hpp), in which what the firmware writes lies in memory alone.
//
// Invariants
//   * the file stays as it is, byte for byte: the boot record still says how its last user left it;
//   * what the firmware writes while it recovers, and what a MAP SET or a term changes, is forgotten with the
//   process: so nothing that a drive on it acknowledges may be a change of data or of a volume
//   (CommandPath refuses those).
#pragma once

#include "ssd/flash/file/store_view.hpp"
#include "ssd/flash/store.hpp"

namespace gnstor::ssd {

class ViewStore final : public Store {
  public:
    /// kState where the store may lack acknowledged writes or was being emptied, kCorrupt where its metadata
    /// is damaged or records are missing.
    static Result<std::unique_ptr<Store>> open(const std::filesystem::path& path, const Uuid& host_boot);

    [[nodiscard]] StoreIdentity identity() const override;
    [[nodiscard]] deengine::MetadataStore& metadata() override { return *view_; }
    Result<FlashParts> parts(std::uint32_t count) override { return view_->parts(count); }
    [[nodiscard]] bool write_protected() const override { return true; }
    [[nodiscard]] std::string describe() const override;

  private:
    ViewStore(std::unique_ptr<StoreView> view, const BootRecord& boot)
        : view_(std::move(view)), boot_(boot) {}
    std::unique_ptr<StoreView> view_;
    BootRecord boot_;
};

/// Whether the store is a file that is there and lies on a read-only file system.
[[nodiscard]] bool on_read_only_file_system(const std::filesystem::path& path);

}  // namespace gnstor::ssd
