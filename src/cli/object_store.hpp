// object_store.hpp: named byte strings in an embedded array: a volume each, of the object's size.
//
// An object is whole or absent: one whose put was interrupted still has a writer in its record, and is
// removed when the store is opened next. Stores are locked by the process that has them open. One thread.
#pragma once

#include <gnstor/embedded_array.hpp>

#include "cli/array_factory.hpp"

namespace gnstor::cli {

class EmbeddedObjectStore final : public ObjectStore {
  public:
    static Result<std::unique_ptr<ObjectStore>> open(const EmbeddedArrayOptions& options,
                                                     std::unique_ptr<daemon::RecordStore> records);

    Result<void> put(const std::string& name, std::istream& from, std::uint64_t bytes,
                     const Progress& progress) override;
    Result<std::uint64_t> get(const std::string& name, std::ostream& to, const Progress& progress) override;
    Result<std::vector<ObjectInfo>> list() override;
    Result<void> remove(const std::string& name) override;

  private:
    EmbeddedObjectStore(std::unique_ptr<EmbeddedArray> array, std::unique_ptr<client::Client> client)
        : array_(std::move(array)), client_(std::move(client)) {}
    Result<void> remove_interrupted();
    /// What can still be stored, at best: flash pages that can be programmed, over the replicas.
    [[nodiscard]] std::uint64_t room_bytes() const;
    Result<void> fill(client::Volume& volume, std::istream& from, std::uint64_t bytes,
                      const Progress& progress);

    std::unique_ptr<EmbeddedArray> array_;
    std::unique_ptr<client::Client> client_;
};

}  // namespace gnstor::cli
