// object_store.hpp: objects, named byte strings, in an array: each is a volume of the object's size. One
// thread.
//
// An object is whole or absent. A put records the byte length as its last step, and only an empty object has
// a volume of one block, so a volume's record alone says whether its put finished (is_whole). Objects that
// are not whole are hidden.
//
// Commands that read (get, cat, ls) delete nothing: a record without a length may also be an older copy of a
// whole object's record, from a drive that was rolled back. Only a put removes what an interrupted put left,
// only in an array that no other process has open, and only if an intent file (put_intent.hpp) names the
// object. That file is stable before anything of the object is made, and removed before its put is reported
// as done, so no acknowledged object has one. Any other object that is not whole stays until a user removes
// it by name.
#pragma once

#include <gnstor/embedded_array.hpp>
#include <gnstor/remote_array.hpp>

#include "cli/array_factory.hpp"
#include "cli/put_intent.hpp"
#include "cli/store_folder.hpp"

#include <optional>

namespace gnstor::cli {

/// Code shared by the embedded and the remote store.
class VolumeObjectStore : public ObjectStore {
  public:
    Result<void> put(const std::string& name, std::istream& from, std::uint64_t bytes,
                     const Progress& progress) override;
    Result<ObjectGot> get(const std::string& name, std::ostream& to, bool older,
                          const Progress& progress) override;
    Result<std::vector<ObjectInfo>> list() override;
    Result<void> remove(const std::string& name) override;

  protected:
    /// Upper bound of the bytes that can still be stored; ~0: unknown.
    [[nodiscard]] virtual std::uint64_t room_bytes() const = 0;
    [[nodiscard]] virtual std::uint32_t ssds() const = 0;
    /// Folder for the temporary file that holds input of unknown length.
    [[nodiscard]] virtual std::filesystem::path spool_folder() const = 0;
    /// Reads that met a bad checksum so far.
    [[nodiscard]] virtual std::uint64_t media_errors() const = 0;
    /// The store as messages name it: "in FOLDER" or "of this array".
    [[nodiscard]] virtual std::string where() const = 0;
    [[nodiscard]] virtual client::Client& client() const = 0;

    /// Whether no other process has the array open.
    [[nodiscard]] virtual bool alone() const { return false; }
    /// Make and remove the intent file of a put (embedded store only): before anything of the object is made,
    /// and once it is whole or removed.
    virtual Result<void> begin_put(const std::string&) { return {}; }
    virtual Result<void> end_put() { return {}; }
    /// Removes what killed puts left behind.
    virtual Result<void> remove_interrupted() { return {}; }
    /// kPermission if the store is read-only. `what`: the beginning of the message, as "'NAME' was not
    /// stored".
    [[nodiscard]] virtual Result<void> refuse_read_only(const std::string&) const { return {}; }
    /// kState if no object can be made because an SSD is missing. `what`: as above.
    [[nodiscard]] virtual Result<void> refuse_missing(const std::string&) const { return {}; }
    virtual void put_is_done() {}
    /// Whether a volume is an object of this store: whether this store's client owns it.
    [[nodiscard]] bool is_object(const nvme::VolumeRecord& record) const;
    /// nullopt if there is no volume of that name.
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
    /// `folder`: the locked folder of a put; null for commands that only read or remove. A store made here is
    /// removed again unless a put succeeds.
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

    std::unique_ptr<StoreFolder> folder_;  ///< null: the command only reads or removes
    std::unique_ptr<PutIntent> intent_;    ///< of the put in progress
    std::unique_ptr<EmbeddedArray> array_;
    std::unique_ptr<client::Client> client_;
};

class RemoteObjectStore final : public VolumeObjectStore {
  public:
    /// `owner`: name of the client that owns the objects.
    static Result<std::unique_ptr<ObjectStore>> open(std::unique_ptr<RemoteArray> array,
                                                     const std::string& owner);

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

/// Bytes of the volume of an object: one block for an empty object, at least two for any other (is_whole).
[[nodiscard]] std::uint64_t capacity_for(std::uint64_t bytes);
/// Whether the put that made this volume finished.
[[nodiscard]] bool is_whole(const nvme::VolumeRecord& record);

}  // namespace gnstor::cli
