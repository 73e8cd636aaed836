// object_store.hpp: named byte strings in an array: a volume each, of the object's size. One thread.
//
// An object is whole or absent. A put records the length at its end alone, and a volume of one block is an
// object of no bytes, so that a record says by itself whether its put came to its end (is_whole). What is not
// whole is not shown.
//
// What reads deletes nothing (get, cat, ls): a record that lacks its end may also be an older one of an
// object that is whole, of a drive whose state went back. A put alone removes what another one left, and only
// in an array that its process has for itself, on the word of an intent (put_intent.hpp): a file that was
// stable before anything of the object was made and gone before its put was reported as done, so that nothing
// acknowledged can have one. Whatever else is not whole stays until somebody removes it by its name.
#pragma once

#include <gnstor/embedded_array.hpp>
#include <gnstor/remote_array.hpp>

#include "cli/array_factory.hpp"
#include "cli/put_intent.hpp"
#include "cli/store_folder.hpp"

#include <optional>

namespace gnstor::cli {

/// What both kinds share.
class VolumeObjectStore : public ObjectStore {
  public:
    Result<void> put(const std::string& name, std::istream& from, std::uint64_t bytes,
                     const Progress& progress) override;
    Result<ObjectGot> get(const std::string& name, std::ostream& to, bool older,
                          const Progress& progress) override;
    Result<std::vector<ObjectInfo>> list() override;
    Result<void> remove(const std::string& name) override;

  protected:
    /// Bytes that can still be stored, at best; ~0: not known.
    [[nodiscard]] virtual std::uint64_t room_bytes() const = 0;
    [[nodiscard]] virtual std::uint32_t ssds() const = 0;
    /// Where what comes through a pipe is kept meanwhile.
    [[nodiscard]] virtual std::filesystem::path spool_folder() const = 0;
    /// Reads that met a bad checksum so far.
    [[nodiscard]] virtual std::uint64_t media_errors() const = 0;
    /// The store, for people: "in FOLDER" or "at ADDRESS".
    [[nodiscard]] virtual std::string where() const = 0;
    [[nodiscard]] virtual client::Client& client() const = 0;

    /// Nobody else has the array open.
    [[nodiscard]] virtual bool alone() const { return false; }
    /// Before anything of an object is made, and when it is whole or removed: says so where the next one
    /// looks.
    virtual Result<void> begin_put(const std::string&) { return {}; }
    virtual Result<void> end_put() { return {}; }
    /// Removes what puts left behind that were killed.
    virtual Result<void> remove_interrupted() { return {}; }
    /// kPermission where nothing in the store can be changed; `what` was to be done.
    [[nodiscard]] virtual Result<void> refuse_read_only(const std::string&) const { return {}; }
    /// kState where no object can be made, because an SSD is missing; `what` was to be done.
    [[nodiscard]] virtual Result<void> refuse_missing(const std::string&) const { return {}; }
    virtual void put_is_done() {}
    /// Nothing where there is no volume of that name.
    [[nodiscard]] Result<std::optional<nvme::VolumeRecord>> find(const std::string& name) const;

  private:
    Result<void> put_sized(const std::string& name, std::istream& from, std::uint64_t bytes,
                           const std::string& full, const Progress& progress);
    /// kExists where the name is taken.
    [[nodiscard]] Result<void> refuse_taken(const std::string& name) const;
    Result<void> put_new(const std::string& name, std::istream& from, std::uint64_t bytes,
                         const Progress& progress);
    Result<void> fill(client::Volume& volume, std::istream& from, std::uint64_t bytes,
                      const Progress& progress);
    Result<void> create(const std::string& name, std::uint64_t bytes);
};

class EmbeddedObjectStore final : public VolumeObjectStore {
  public:
    /// `folder`: of a put; null for what only reads or removes. Not kept: a store that this makes is removed
    /// again unless a put succeeds.
    static Result<std::unique_ptr<ObjectStore>> open(const EmbeddedArrayOptions& options,
                                                     std::unique_ptr<daemon::RecordStore> records,
                                                     std::unique_ptr<StoreFolder> folder);
    ~EmbeddedObjectStore() override;

  private:
    EmbeddedObjectStore(std::unique_ptr<StoreFolder> folder, std::unique_ptr<EmbeddedArray> array,
                        std::unique_ptr<client::Client> client)
        : folder_(std::move(folder)), array_(std::move(array)), client_(std::move(client)) {}
    [[nodiscard]] std::uint64_t room_bytes() const override;
    [[nodiscard]] std::uint32_t ssds() const override { return array_->options().ssds; }
    [[nodiscard]] std::filesystem::path spool_folder() const override { return array_->options().directory; }
    [[nodiscard]] std::uint64_t media_errors() const override;
    [[nodiscard]] std::string where() const override;
    [[nodiscard]] client::Client& client() const override { return *client_; }
    [[nodiscard]] bool alone() const override { return true; }
    Result<void> begin_put(const std::string& name) override;
    Result<void> end_put() override;
    Result<void> remove_interrupted() override;
    [[nodiscard]] Result<void> refuse_read_only(const std::string& what) const override;
    [[nodiscard]] Result<void> refuse_missing(const std::string& what) const override;
    void put_is_done() override;

    std::unique_ptr<StoreFolder> folder_;  ///< null: of what only reads or removes
    std::unique_ptr<PutIntent> intent_;    ///< of the put that is under way
    std::unique_ptr<EmbeddedArray> array_;
    std::unique_ptr<client::Client> client_;
};

class RemoteObjectStore final : public VolumeObjectStore {
  public:
    static Result<std::unique_ptr<ObjectStore>> open(std::unique_ptr<RemoteArray> array);

  private:
    RemoteObjectStore(std::unique_ptr<RemoteArray> array, std::unique_ptr<client::Client> client)
        : array_(std::move(array)), client_(std::move(client)) {}
    [[nodiscard]] std::uint64_t room_bytes() const override { return ~0ull; }
    [[nodiscard]] std::uint32_t ssds() const override;
    [[nodiscard]] std::filesystem::path spool_folder() const override;
    [[nodiscard]] std::uint64_t media_errors() const override { return 0; }
    [[nodiscard]] std::string where() const override { return "of this array"; }
    [[nodiscard]] client::Client& client() const override { return *client_; }

    std::unique_ptr<RemoteArray> array_;
    std::unique_ptr<client::Client> client_;
};

/// Whether the put of this volume came to its end.
[[nodiscard]] bool is_whole(const nvme::VolumeRecord& record);

}  // namespace gnstor::cli
