// view_store.hpp: a drive's backbone over a store on a read-only file system: a view (store_view.hpp), in
// which the firmware's writes stay in memory.
//
// Invariants
//   * the file stays unchanged byte for byte: the boot record still says how its last user left it;
//   * what the firmware writes during its recovery, and what a MAP SET or a term changes, is lost with the
//     process: so a drive on this store must not acknowledge any change of data or of a volume (CommandPath
//     refuses those).
#pragma once

#include "ssd/flash/file/store_view.hpp"
#include "ssd/flash/store.hpp"

namespace gnstor::ssd {

class ViewStore final : public Store {
  public:
    /// kState if the store may lack acknowledged writes or was being emptied, kCorrupt if its metadata is
    /// damaged or records are missing.
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

/// Whether the store is an existing file on a read-only file system.
[[nodiscard]] bool on_read_only_file_system(const std::filesystem::path& path);

}  // namespace gnstor::ssd
