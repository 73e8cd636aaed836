// array_factory.cpp: where the programs are joined to the embedded array (gnstor/embedded_array.hpp).
#include "cli/array_factory.hpp"

#include <gnstor/embedded_array.hpp>

#include "cli/object_store.hpp"
#include "daemon/in_process.hpp"
#include "daemon/sqlite_store.hpp"

#include <algorithm>
#include <thread>

namespace gnstor::cli {
namespace {

namespace fs = std::filesystem;

class EmbeddedServedArray final : public ServedArray {
  public:
    explicit EmbeddedServedArray(std::unique_ptr<EmbeddedArray> array) : array_(std::move(array)) {}
    client::ControlPlane& control() override { return array_->control(); }
    daemon::Inspector& inspector() override { return array_->daemon(); }

  private:
    std::unique_ptr<EmbeddedArray> array_;
};

/// How many SSDs' stores lie in a folder: ssd-0.store and on. A gap is an array with a drive missing.
Result<std::uint32_t> count_stores(const fs::path& directory) {
    std::uint32_t count = 0, highest = 0;
    std::error_code failed;
    for (auto it = fs::directory_iterator(directory, failed); !failed && it != fs::directory_iterator();
         it.increment(failed)) {
        unsigned number = 0;
        int used = 0;
        const std::string name = it->path().filename().string();
        if (std::sscanf(name.c_str(), "ssd-%u.store%n", &number, &used) != 1 ||
            used != static_cast<int>(name.size()))
            continue;
        ++count;
        highest = std::max(highest, number + 1);
    }
    if (count != highest)
        return error(Errc::kNotFound,
                     "{} holds {} SSD stores, but numbers up to {}: some are missing; bring them back",
                     directory.string(), count, highest - 1);
    return count;
}

constexpr std::uint32_t kPagesPerMib = 256;

Result<EmbeddedArrayOptions> embedded_options(const ArrayOptions& options) {
    EmbeddedArrayOptions embedded;
    embedded.directory = options.directory;
    embedded.ssd_capacity_bytes = options.ssd_capacity_bytes;
    embedded.lease_ms = options.lease_ms;
    embedded.service_units = options.service_units;
    embedded.scrub_pages_per_second = options.scrub_mib * kPagesPerMib;
    embedded.durability = options.durability;
    embedded.direct_io = options.direct_io;
    embedded.profile = options.profile;
    embedded.engine_threads = std::max(1u, std::thread::hardware_concurrency() / 2);
    // An array that is there already has the SSDs that it has.
    GN_ASSIGN(const std::uint32_t present, count_stores(options.directory));
    embedded.ssds = present != 0 ? present : options.ssds;
    return embedded;
}

}  // namespace

Result<std::unique_ptr<ServedArray>> make_array(const ArrayOptions& options,
                                                std::unique_ptr<daemon::RecordStore> store) {
    GN_ASSIGN(const EmbeddedArrayOptions embedded, embedded_options(options));
    GN_ASSIGN(std::unique_ptr<EmbeddedArray> array, EmbeddedArray::open(embedded, std::move(store)));
    return std::unique_ptr<ServedArray>(std::make_unique<EmbeddedServedArray>(std::move(array)));
}

Result<std::unique_ptr<ObjectStore>> open_object_store(const ArrayOptions& options, bool create) {
    GN_ASSIGN(EmbeddedArrayOptions embedded, embedded_options(options));
    embedded.scrub_pages_per_second = 0;  // a command is over before a scrub is any use
    GN_ASSIGN(const std::uint32_t present, count_stores(options.directory));
    if (!create && present == 0)
        return error(Errc::kNotFound, "there is no store in {}; 'gnstor put --store {} FILE' begins one",
                     options.directory.string(), options.directory.string());
    // An array that gnstord served has records beside its SSDs, and they have to agree with them.
    std::unique_ptr<daemon::RecordStore> records = std::make_unique<daemon::MemoryRecordStore>();
    std::error_code failed;
    if (const fs::path file = options.directory / "records.db"; fs::exists(file, failed)) {
        GN_ASSIGN(records, daemon::SqliteRecordStore::open({file, false}));
    }
    return EmbeddedObjectStore::open(embedded, std::move(records));
}

}  // namespace gnstor::cli
