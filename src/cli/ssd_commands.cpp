// ssd_commands.cpp: gnstor ssd format|info|reset-term: works on a store offline, without daemon and array.
// check and recover: check_commands.cpp.
#include "cli/cli.hpp"

#include <gnstor/base/units.hpp>
#include <gnstor/base/uuid.hpp>
#include <gnstor/nvme/fencing.hpp>

#include "ssd/drive/backbone.hpp"
#include "ssd/flash/file/store_file.hpp"
#include "ssd/tools/device_guard.hpp"
#include "ssd/tools/store_tool.hpp"

#include <fcntl.h>
#include <sys/file.h>

namespace gnstor::cli {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

struct FormatOptions {
    std::string path, capacity;
    ssd::DriveOptions drive;
    ssd::FormatConsent consent;
};

/// Bytes of the largest capacity whose store fits into `room`: a store is larger by over-provisioning,
/// records and spare units.
Result<std::uint64_t> largest_capacity(ssd::DriveOptions drive, std::uint64_t room) {
    std::uint64_t fits = 0, above = room / nvme::kBlockBytes + 1;
    while (above - fits > 1) {
        drive.capacity_bytes = (fits + above) / 2 * nvme::kBlockBytes;
        const auto store = ssd::new_store_for(drive);
        const bool good =
            store.ok() && ssd::StoreLayout::of(store->geometry, store->metadata_bytes).file_bytes <= room;
        (good ? fits : above) = (fits + above) / 2;
    }
    if (fits == 0)
        return error(Errc::kNoSpace,
                     "{} is too little space for a store with erase units of {} pages; choose smaller erase "
                     "units (--unit-pages) or a larger device",
                     format_bytes(room), drive.pages_per_unit);
    return fits * nvme::kBlockBytes;
}

/// Facts of what `path` holds now, if the user allows it to be overwritten. Empty: there is no such file.
Result<ssd::DeviceFacts> ask_guard(const FormatOptions& o) {
    std::error_code failed;
    if (!fs::exists(o.path, failed)) {
        if (!o.consent.device_serial.empty()) return error(Errc::kNotFound, "there is no device {}", o.path);
        return ssd::DeviceFacts{};
    }
    GN_ASSIGN(ssd::DeviceFacts facts, ssd::inspect_device(o.path));
    GN_TRY(ssd::allow_format(facts, o.path, o.consent));
    return facts;
}

/// The old contents are locked while the new store is made, so that no other program starts to use them. A
/// file is replaced atomically.
Result<void> make_store(const FormatOptions& o, ssd::NewStore what, const ssd::DeviceFacts& facts,
                        bool exists) {
    if (!exists) {
        GN_TRY(ssd::StoreFile::create(o.path, what));
        return {};
    }
    const int exclusive = facts.block_device ? O_EXCL : 0;
    ssd::FileDescriptor old(::open(o.path.c_str(), O_RDWR | O_CLOEXEC | exclusive));
    if (old.get() < 0)
        return error(Errc::kBusy, "{} cannot be opened for formatting: {}", o.path, ssd::errno_text());
    if (::flock(old.get(), LOCK_EX | LOCK_NB) != 0)
        return error(Errc::kBusy,
                     "{} is the store of an SSD in use: stop the gnstord or node that serves it first",
                     o.path);
    if (facts.block_device) {
        GN_TRY(ssd::wipe_signatures(old.get(), o.path));
        old = ssd::FileDescriptor();
    }
    what.replace = true;
    GN_TRY(ssd::StoreFile::create(o.path, what));
    return {};
}

std::string describe_new(const ssd::StoreFacts& f, const std::string& path) {
    return fmt::format("{} is an SSD now: {} of {} in {} erase units of {}, serial number {}\n", path,
                       format_bytes(f.capacity_bytes), format_bytes(f.file_bytes), f.geometry.units,
                       format_bytes(std::uint64_t{f.geometry.pages_per_unit} * nvme::kBlockBytes), f.serial);
}

json to_json(const ssd::StoreFacts& f) {
    return {{"format_version", f.format_version},
            {"drive_uuid", Uuid{f.drive_uuid}.to_string()},
            {"incarnation", Uuid{f.incarnation}.to_string()},
            {"serial", f.serial},
            {"durability", f.mode == ssd::BootMode::kProcess ? "process" : "power"},
            {"state", f.state == ssd::BootState::kClean  ? "clean"
                      : f.state == ssd::BootState::kOpen ? "open"
                                                         : "emptying"},
            {"trusted", f.trusted},
            {"capacity_bytes", f.capacity_bytes},
            {"over_provisioning_percent", f.over_provisioning_percent},
            {"erase_units", f.geometry.units},
            {"pages_per_unit", f.geometry.pages_per_unit},
            {"channels", f.geometry.channels},
            {"dies_per_channel", f.geometry.dies_per_channel},
            {"service_units", f.service_units},
            {"store_bytes", f.file_bytes},
            {"metadata_bytes", f.metadata_bytes},
            {"pages",
             {{"data", f.data_pages},
              {"system", f.system_pages},
              {"lost", f.lost_pages},
              {"damaged_records", f.damaged_records},
              {"erased", f.erased_pages}}}};
}

Result<int> format(const Context& c, FormatOptions& o) {
    GN_ASSIGN(const ssd::DeviceFacts facts, ask_guard(o));
    if (!o.capacity.empty()) {
        GN_ASSIGN(o.drive.capacity_bytes, parse_bytes(o.capacity));
    } else if (facts.block_device) {
        GN_ASSIGN(o.drive.capacity_bytes, largest_capacity(o.drive, facts.bytes));
    } else {
        return error(Errc::kInvalidArgument, "a store in a file needs its --capacity, as 16GiB");
    }
    o.drive.file = o.path;
    GN_ASSIGN(const ssd::NewStore what, ssd::new_store_for(o.drive));
    // Checked before anything is destroyed.
    const std::uint64_t needs = ssd::StoreLayout::of(what.geometry, what.metadata_bytes).file_bytes;
    if (facts.block_device && needs > facts.bytes)
        return error(Errc::kNoSpace,
                     "a store of {} needs {} bytes, {} has {}; without --capacity the store gets the "
                     "capacity that fits",
                     format_bytes(o.drive.capacity_bytes), needs, o.path, facts.bytes);
    std::error_code failed;
    GN_TRY(make_store(o, what, facts, fs::exists(o.path, failed)));
    GN_ASSIGN(const ssd::StoreFacts made, ssd::inspect_store(o.path));
    json document = to_json(made);
    document["path"] = o.path;
    document["replaced"] = facts.signatures;
    c.out.document(document);
    c.out.text(describe_new(made, o.path));
    return kOk;
}

Result<int> info(const Context& c, const std::string& path) {
    GN_ASSIGN(const ssd::StoreFacts facts, ssd::inspect_store(path));
    c.out.document(to_json(facts));
    c.out.text(ssd::describe(facts));
    return kOk;
}

Result<int> reset_term(const Context& c, const std::string& path, std::uint64_t term) {
    GN_ASSIGN(const std::uint64_t before, ssd::reset_term(path, term));
    c.out.document({{"path", path}, {"term_before", before}, {"term", term}});
    c.out.text(
        fmt::format("{}: the newest term that the SSD has seen was {}, and is {} now\n", path, before, term));
    return kOk;
}

void add_reset_term(CLI::App& ssd, Context& context) {
    struct Asked {
        std::string path;
        std::uint64_t term = 0;
    };
    auto o = std::make_shared<Asked>();
    CLI::App* command = ssd.add_subcommand(
        "reset-term",
        "set the newest term that an SSD has seen, so that it obeys a gnstord of an older term again");
    command
        ->add_option("PATH", o->path,
                     "the store (a file or block device); no gnstord or node may have it open")
        ->required();
    // A range of signed numbers: a negative argument is refused, not wrapped around into the range.
    command->add_option("--term", o->term, "term to record as the newest that the SSD has seen")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{nvme::kTermOfDriveMost}))
        ->required();
    command->callback([&context, o] {
        context.action = [&context, o] { return finish(context, reset_term(context, o->path, o->term)); };
    });
}

void add_format(CLI::App& ssd, Context& context) {
    auto o = std::make_shared<FormatOptions>();
    CLI::App* command =
        ssd.add_subcommand("format", "create the store of a new SSD in a file or on a block device");
    command->add_option("PATH", o->path, "a new file, or a block device")->required();
    command
        ->add_option("--capacity", o->capacity,
                     "capacity for users' data, as 16GiB; default for a device: what fits")
        ->check(size_text());
    command->add_option("--serial", o->drive.serial, "serial number of the new SSD, at most 20 characters");
    command->add_option("--unit-pages", o->drive.pages_per_unit, "4 KiB pages per erase unit")
        ->check(CLI::Range(8, 1 << 20))
        ->capture_default_str();
    command
        ->add_option("--over-provisioning", o->drive.over_provisioning_percent,
                     "spare flash, in percent of the capacity")
        ->check(CLI::Range(0, 100))
        ->capture_default_str();
    command
        ->add_option("--service-units", o->drive.service_units,
                     "number of service units (shards of the SSD, each run by one thread)")
        ->check(CLI::Range(1, 64))
        ->capture_default_str();
    command->add_option("--channels", o->drive.channels, "number of flash channels")
        ->check(CLI::Range(1, 256))
        ->capture_default_str();
    command->add_option("--dies", o->drive.dies_per_channel, "number of dies per flash channel")
        ->check(CLI::Range(1, 256))
        ->capture_default_str();
    command->add_flag("--force", o->consent.force,
                      "overwrite existing data; a device needs --device-serial too");
    command->add_option("--device-serial", o->consent.device_serial,
                        "serial number of the device to format, as a check against mistakes");
    command->callback(
        [&context, o] { context.action = [&context, o] { return finish(context, format(context, *o)); }; });
}

}  // namespace

int finish(const Context& c, const Result<int>& done) {
    if (done.ok()) return *done;
    const int failed = c.out.fail(done.error());
    return done.error().code == Errc::kInvalidArgument ? kUsage : failed;
}

void add_ssd_commands(CLI::App& app, Context& context) {
    CLI::App* ssd = app.get_subcommand("ssd");
    add_format(*ssd, context);
    add_check_commands(*ssd, context);
    add_reset_term(*ssd, context);
    auto path = std::make_shared<std::string>();
    CLI::App* command = ssd->add_subcommand("info", "show what a store records about its SSD");
    command->add_option("PATH", *path, "a store")->required();
    command->callback([&context, path] {
        context.action = [&context, path] { return finish(context, info(context, *path)); };
    });
}

}  // namespace gnstor::cli
