// object_store.cpp: objects as volumes: created, filled, released; read to their byte length.
#include "cli/object_store.hpp"

#include "cli/spool.hpp"
#include "daemon/decisions/in_process.hpp"
#include "daemon/records/records.hpp"

#include <gnstor/base/log.hpp>
#include <gnstor/base/units.hpp>

#include <algorithm>
#include <cstdio>
#include <istream>
#include <ostream>

namespace gnstor::cli {
namespace {

constexpr std::size_t kStepBytes = 4u << 20;
constexpr std::uint32_t kReplicas = 2;
std::uint64_t whole_blocks(std::uint64_t bytes) {
    return std::max<std::uint64_t>(1, (bytes + nvme::kBlockBytes - 1) / nvme::kBlockBytes) *
           nvme::kBlockBytes;
}

/// Rewords volume errors for users of objects.
Error in_objects_words(Error error_of_volume, const std::string& name) {
    if (error_of_volume.code != Errc::kNotFound) return error_of_volume;
    return error(Errc::kNotFound,
                 "there is no object '{}' in the store; 'gnstor ls' with the same --store lists them", name);
}

/// The volume was opened for writing once, and its lease has ended since.
bool is_over(const nvme::VolumeRecord& record) {
    return record.writer == 0 && record.epoch != record.birth_epoch;
}

client::ClientOptions options_of_client(const std::string& name) {
    client::ClientOptions options;
    options.name = name;
    options.channels = 1;
    return options;
}

/// Reads up to the size of `to`; the rest is zeroed. Returns the bytes read.
std::size_t read_step(std::istream& from, std::span<std::byte> to) {
    from.read(reinterpret_cast<char*>(to.data()), static_cast<std::streamsize>(to.size()));
    const auto got = static_cast<std::size_t>(from.gcount());
    std::fill(to.begin() + static_cast<std::ptrdiff_t>(got), to.end(), std::byte{0});
    return got;
}

}  // namespace

std::uint64_t capacity_for(std::uint64_t bytes) {
    return bytes == 0 ? nvme::kBlockBytes
                      : std::max<std::uint64_t>(whole_blocks(bytes), 2 * nvme::kBlockBytes);
}

bool is_whole(const nvme::VolumeRecord& record) {
    const bool has_length =
        record.byte_length != 0 || record.geometry.capacity_blocks * nvme::kBlockBytes == capacity_for(0);
    return is_over(record) && has_length;
}

Result<std::unique_ptr<ObjectStore>> EmbeddedObjectStore::open(const EmbeddedArrayOptions& options,
                                                               std::unique_ptr<daemon::RecordStore> records,
                                                               std::unique_ptr<StoreFolder> folder) {
    Result<std::unique_ptr<EmbeddedArray>> opened = EmbeddedArray::open(options, std::move(records));
    // kBusy: another process has opened the stores meanwhile.
    if (!opened.ok() && opened.error().code != Errc::kBusy && folder) folder->forget_stores(options.ssds);
    GN_ASSIGN(std::unique_ptr<EmbeddedArray> array, std::move(opened));
    for (const std::string& warning : array->daemon().start_report().warnings) log_warn("{}", warning);
    Result<std::unique_ptr<client::Client>> connected = array->connect(options_of_client(kObjectsClient));
    if (!connected.ok() && folder) folder->forget_stores(options.ssds);
    GN_ASSIGN(std::unique_ptr<client::Client> client, std::move(connected));
    return std::unique_ptr<ObjectStore>(
        new EmbeddedObjectStore(std::move(folder), std::move(array), std::move(client)));
}

EmbeddedObjectStore::~EmbeddedObjectStore() {
    if (folder_) folder_->forget_stores(ssds());
}

void EmbeddedObjectStore::put_is_done() {
    if (folder_) folder_->keep();
}

Result<void> EmbeddedObjectStore::refuse_read_only(const std::string& what) const {
    for (const EmbeddedSsd& ssd : array_->ssds())
        if (ssd.write_protected)
            return error(Errc::kPermission,
                         "{}: the store {} can only be read (SSD {} is on a read-only file system); nothing "
                         "was changed",
                         what, where(), ssd.serial);
    return {};
}

Result<void> EmbeddedObjectStore::refuse_missing(const std::string& what) const {
    return array_->daemon().check_none_missing(what);
}

std::uint64_t EmbeddedObjectStore::media_errors() const {
    std::uint64_t errors = 0;
    for (const EmbeddedSsd& ssd : array_->ssds()) errors += ssd.media_errors;
    return errors;
}

std::string EmbeddedObjectStore::where() const {
    return "in " + array_->options().directory.string();
}

Result<std::unique_ptr<ObjectStore>> RemoteObjectStore::open(std::unique_ptr<RemoteArray> array,
                                                             const std::string& owner) {
    GN_ASSIGN(std::unique_ptr<client::Client> client, array->connect(options_of_client(owner)));
    return std::unique_ptr<ObjectStore>(new RemoteObjectStore(std::move(array), std::move(client)));
}

std::uint32_t RemoteObjectStore::ssds() const {
    // Also those that are out: what is put while an SSD is silent is to have its replicas when that is back.
    const placement::ArrayMap& map = client_->array().map;
    return static_cast<std::uint32_t>(
        std::count_if(map.slots, map.slots + map.slot_count,
                      [](const placement::Slot& slot) { return placement::takes_part(slot); }));
}

std::filesystem::path RemoteObjectStore::spool_folder() const {
    std::error_code failed;
    const auto folder = std::filesystem::temp_directory_path(failed);
    return failed ? std::filesystem::path("/tmp") : folder;
}

Result<std::optional<nvme::VolumeRecord>> VolumeObjectStore::find(const std::string& name) const {
    GN_ASSIGN(const std::vector<nvme::VolumeRecord> volumes, client().control().list_volumes());
    for (const nvme::VolumeRecord& record : volumes)
        if (name == record.name) return std::optional(record);
    return std::optional<nvme::VolumeRecord>();
}

Result<void> EmbeddedObjectStore::begin_put(const std::string& name) {
    GN_ASSIGN(intent_, PutIntent::begin(array_->options().directory, name));
    return {};
}

Result<void> EmbeddedObjectStore::end_put() {
    const std::unique_ptr<PutIntent> over = std::move(intent_);
    return over == nullptr ? Result<void>() : over->end();
}

Result<void> EmbeddedObjectStore::remove_interrupted() {
    const std::filesystem::path& folder = array_->options().directory;
    for (const std::string& name : PutIntent::left_behind(folder)) {
        GN_ASSIGN(const std::optional<nvme::VolumeRecord> there, find(name));
        if (there && is_object(*there) && !is_whole(*there)) {
            GN_TRY(client().control().delete_volume(there->owner, name));
            log_warn("an earlier put of '{}' was interrupted; its incomplete object is removed", name);
        }
        GN_TRY(PutIntent::forget(folder, name));
    }
    return {};
}

Result<void> VolumeObjectStore::create(const std::string& name, std::uint64_t bytes) {
    client::CreateVolume request;
    request.name = name;
    request.capacity_bytes = capacity_for(bytes);
    request.replicas = std::min(kReplicas, ssds());
    auto created = client().create(request);
    if (created.ok()) return {};
    if (created.error().code != Errc::kExists) return std::move(created).error();
    GN_TRY(refuse_taken(name));
    return std::move(created).error();  // the other volume was deleted meanwhile
}

Result<void> VolumeObjectStore::refuse_taken(const std::string& name) const {
    GN_ASSIGN(const std::optional<nvme::VolumeRecord> there, find(name));
    if (!there) return {};
    if (is_object(*there) && !is_whole(*there))
        return error(Errc::kExists,
                     "'{}' is being stored by another 'gnstor put', or is incomplete because that put was "
                     "killed: wait, or remove it ('gnstor rm')",
                     name);
    return error(Errc::kExists,
                 "there is an object '{}' already; remove it first ('gnstor rm') or give another name", name);
}

Result<void> VolumeObjectStore::put(const std::string& name, std::istream& from, std::uint64_t bytes,
                                    const Progress& progress) {
    GN_TRY(daemon::check_name("name", name));  // the intent file takes this name before any volume does
    // An embedded store refuses here, before anything is removed or read; in a remote array gnstord refuses
    // later.
    const std::string refused = fmt::format("'{}' was not stored", name);
    GN_TRY(refuse_read_only(refused));
    GN_TRY(refuse_missing(refused));
    GN_TRY(remove_interrupted());
    const std::uint64_t room = room_bytes();
    const std::string full = fmt::format(
        "'{}' does not fit: the store {} has room for {} more; remove objects, or create a larger store "
        "(--capacity, --ssds)",
        name, where(), format_bytes(room));
    // A volume's size is fixed when it is created: input of unknown length is read to its end first.
    if (bytes == ~0ull) {
        GN_TRY(refuse_taken(name));  // before the input is read: it may be long
        GN_ASSIGN(const std::unique_ptr<Spool> spool, Spool::read(from, spool_folder(), room, full));
        return put_sized(name, spool->stream(), spool->bytes(), full, progress);
    }
    return put_sized(name, from, bytes, full, progress);
}

Result<void> VolumeObjectStore::put_sized(const std::string& name, std::istream& from, std::uint64_t bytes,
                                          const std::string& full, const Progress& progress) {
    if (bytes > room_bytes()) return error(Errc::kNoSpace, "{}", full);
    GN_TRY(refuse_taken(name));  // before the intent file: a whole object must never have one
    GN_TRY(begin_put(name));
    Result<void> done = put_new(name, from, bytes, progress);
    Result<void> ended = end_put();
    if (done.ok() && ended.ok()) put_is_done();
    return done.ok() ? std::move(ended) : std::move(done);
}

Result<void> VolumeObjectStore::put_new(const std::string& name, std::istream& from, std::uint64_t bytes,
                                        const Progress& progress) {
    GN_TRY(create(name, bytes));
    auto volume = client().open(name, client::OpenMode::kWrite);
    auto done = volume.ok() ? fill(**volume, from, bytes, progress) : Result<void>(std::move(volume).error());
    if (done.ok()) return done;
    if (volume.ok()) volume->reset();
    if (auto removed = remove(name); !removed.ok())
        log_warn("'{}' could not be removed after its put failed: {}", name, removed.error().message);
    return done;
}

std::uint64_t EmbeddedObjectStore::room_bytes() const {
    // Counts the capacity that drives advertise, not their over-provisioned flash.
    std::uint64_t blocks = 0;
    for (const EmbeddedSsd& ssd : array_->ssds())
        blocks += ssd.capacity_blocks - std::min(ssd.capacity_blocks, ssd.mapped_blocks);
    return blocks / std::min(kReplicas, array_->options().ssds) * nvme::kBlockBytes;
}

Result<void> VolumeObjectStore::fill(client::Volume& volume, std::istream& from, std::uint64_t bytes,
                                     const Progress& progress) {
    std::vector<std::byte> step(kStepBytes);
    for (std::uint64_t at = 0; at < bytes; at += kStepBytes) {
        const std::uint64_t want = std::min<std::uint64_t>(kStepBytes, bytes - at);
        const std::span<std::byte> blocks(step.data(), whole_blocks(want));
        if (read_step(from, blocks.first(want)) != want)
            return error(
                Errc::kIo,
                "'{}' was not stored: the input had {} bytes when it was opened and became shorter while it "
                "was read; put it again when no program writes to it",
                volume.record().name, bytes);
        std::fill(blocks.begin() + static_cast<std::ptrdiff_t>(want), blocks.end(), std::byte{0});
        GN_TRY(volume.write(at / nvme::kBlockBytes, blocks));
        if (progress) progress(at + want, bytes);
    }
    const bool more = from.peek() != std::istream::traits_type::eof();
    if (from.bad())
        return error(Errc::kIo, "'{}' was not stored: the input cannot be read", volume.record().name);
    if (more)
        return error(Errc::kIo,
                     "'{}' was not stored: the input had {} bytes when it was opened and grew while it was "
                     "read; put it again when no program writes to it, or through a pipe ('gnstor put - "
                     "NAME')",
                     volume.record().name, bytes);
    GN_TRY(volume.set_byte_length(bytes));
    return volume.release();
}

Result<ObjectGot> VolumeObjectStore::get(const std::string& name, std::ostream& to, bool older,
                                         const Progress& progress) {
    auto opened = client().open(name, client::OpenMode::kRead);
    if (!opened.ok()) return in_objects_words(std::move(opened).error(), name);
    const std::unique_ptr<client::Volume> volume = std::move(opened).value();
    if (!is_whole(volume->record()))
        return error(Errc::kNotFound,
                     "the object '{}' is incomplete: a 'gnstor put' of it is still running, or was killed; "
                     "wait, or remove it ('gnstor rm') and store it again",
                     name);
    const std::uint64_t bytes = volume->record().byte_length;
    ObjectGot got{.bytes = bytes};
    const std::uint64_t errors_before = media_errors();
    std::vector<std::byte> step(kStepBytes);
    for (std::uint64_t at = 0; at < bytes; at += kStepBytes) {
        const std::uint64_t want = std::min<std::uint64_t>(kStepBytes, bytes - at);
        const std::span<std::byte> blocks(step.data(), whole_blocks(want));
        GN_ASSIGN(const std::uint64_t met, volume->read_older_too(at / nvme::kBlockBytes, blocks));
        got.older_blocks += met;
        if (met != 0 && !older)
            return error(
                Errc::kCorrupt,
                "'{}': the newest version of {} of its blocks is torn by a power cut or corrupt on every "
                "replica; --older reads their older versions, or zeroes if there is no older version",
                name, met);
        to.write(reinterpret_cast<const char*>(step.data()), static_cast<std::streamsize>(want));
        if (!to)
            return error(Errc::kIo, "only {} of {} could be written to the output", format_bytes(at),
                         format_bytes(bytes));
        if (progress) progress(at + want, bytes);
    }
    if (const std::uint64_t errors = media_errors() - errors_before; errors != 0)
        log_warn(
            "'{}': {} reads met a block whose checksum is wrong; another replica answered them. Store the "
            "object again to have all its replicas",
            name, errors);
    return got;
}

/// Other clients' volumes may have names that objects might have, too.
bool VolumeObjectStore::is_object(const nvme::VolumeRecord& record) const {
    return client().identity().name == std::string_view(record.owner_name);
}

Result<std::vector<ObjectInfo>> VolumeObjectStore::list() {
    GN_ASSIGN(const std::vector<nvme::VolumeRecord> volumes, client().control().list_volumes());
    std::vector<ObjectInfo> objects;
    for (const nvme::VolumeRecord& record : volumes) {
        if (!is_object(record)) continue;
        if (is_whole(record))
            objects.push_back({record.name, record.byte_length, record.geometry.replicas});
        else if (alone() || is_over(record))
            log_warn(
                "the put of '{}' was interrupted: its incomplete object is not listed; 'gnstor rm {}' "
                "removes it",
                record.name, record.name);
    }
    return objects;
}

Result<void> VolumeObjectStore::remove(const std::string& name) {
    GN_TRY(refuse_read_only(fmt::format("'{}' was not removed", name)));
    auto removed = client().control().delete_volume(client().identity().id, name);
    if (!removed.ok()) return in_objects_words(std::move(removed).error(), name);
    return {};
}

}  // namespace gnstor::cli
