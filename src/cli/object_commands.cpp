// object_commands.cpp: gnstor put, get, cat, ls, rm: whole files in an array that other processes serve
// (--array, or the default socket), or in one in a folder (--store), which needs no daemon.
#include "cli/cli.hpp"
#include "cli/source_file.hpp"
#include "cli/target_file.hpp"
#include "daemon/http/client_token.hpp"

#include <gnstor/base/log.hpp>
#include <gnstor/base/say.hpp>
#include <gnstor/base/shell_word.hpp>
#include <gnstor/base/units.hpp>

#include <unistd.h>

#include <filesystem>

namespace gnstor::cli {
namespace {

using nlohmann::json;

struct ObjectOptions {
    std::string store, address, name, file, capacity = "1GiB";
    std::uint32_t ssds = 4;
    bool name_given = false, file_given = false;
    bool older = false;
};

/// Files and folders of the array, which `get` and `cat` must not overwrite.
ArrayPlaces places(const Context& c, const ObjectOptions& o) {
    std::vector<std::filesystem::path> files{c.token_path()};
    if (!c.tls.ca_file.empty()) files.push_back(c.tls.ca_file);
    if (!o.store.empty()) return {.folders = {o.store}, .files = files};
    files.push_back(c.socket_path());
    return {.folders = {c.directory, c.socket_path().parent_path()}, .files = files};
}

/// Prints which wire the command uses; not with --output json.
void say_wire(const Context& c, const std::string& wire) {
    if (!c.out.json) say(stderr, "wire: {}\n", wire);
}

/// The token of one client acts as that client alone, so its objects are that client's own.
std::string owner_of_objects(const Context& c) {
    return daemon::read_client_token(c.server.token) ? c.as : kObjectsClient;
}

Result<std::unique_ptr<ObjectStore>> open(const Context& c, const ObjectOptions& o, bool create) {
    if (o.store.empty()) {
        RemoteArrayOptions remote = c.remote_array();
        remote.address = o.address;
        std::string wire;
        auto store = open_remote_object_store(remote, owner_of_objects(c), wire);
        if (store.ok()) say_wire(c, wire);
        return store;
    }
    ArrayOptions options;
    options.directory = o.store;
    options.ssds = o.ssds;
    GN_ASSIGN(options.ssd_capacity_bytes, parse_bytes(o.capacity));
    std::error_code failed;
    if (!create && !std::filesystem::is_directory(o.store, failed))
        return error(Errc::kNotFound, "there is no store in {}; `gnstor put --store {} FILE` creates it",
                     o.store, shell_word(o.store));
    return open_object_store(options, create);
}

Result<int> put(const Context& c, const ObjectOptions& o) {
    GN_ASSIGN(const std::unique_ptr<SourceFile> source, SourceFile::open(o.file));
    const std::string name = o.name_given ? o.name : std::filesystem::path(o.file).filename().string();
    if (o.file == "-" && !o.name_given)
        return error(Errc::kInvalidArgument, "data from standard input needs a name: gnstor put - NAME");
    GN_TRY(daemon::check_name("name", name));
    GN_ASSIGN(const std::unique_ptr<ObjectStore> store, open(c, o, true));
    std::uint64_t moved = 0;
    {
        ProgressLine line("put " + name, source->bytes());
        const Result<void> done =
            store->put(name, source->stream(), source->bytes(),
                       [&](std::uint64_t n, std::uint64_t total) { line.at(moved = n, total); });
        GN_TRY(source->state());  // the error itself; the stream only has a flag
        GN_TRY(done);
    }
    c.out.document({{"name", name}, {"bytes", moved}});
    c.out.text(fmt::format("{}: {} stored\n", name, format_bytes(moved)));
    return kOk;
}

void say_older(const std::string& name, const ObjectGot& got) {
    if (got.older_blocks != 0)
        log_warn(
            "'{}': {} of its blocks were read in an older version, or as zeroes if there is no older "
            "version: their newest version is torn by a power cut or corrupt on every replica",
            name, got.older_blocks);
}

/// Writes the object to `file`, and warns of blocks that came in an older version.
Result<ObjectGot> write_object(const Context& c, const ObjectOptions& o, TargetFile& file,
                               ProgressLine& line) {
    GN_ASSIGN(const std::unique_ptr<ObjectStore> store, open(c, o, false));
    const Result<ObjectGot> got = store->get(
        o.name, file.stream(), o.older, [&](std::uint64_t n, std::uint64_t total) { line.at(n, total); });
    GN_TRY(file.state());  // the error itself; the stream only has a flag
    if (!got.ok()) return got.error();
    GN_TRY(file.finish());
    say_older(o.name, *got);
    return got;
}

Result<int> cat(const Context& c, const ObjectOptions& o) {
    GN_ASSIGN(const std::unique_ptr<TargetFile> out, TargetFile::standard_output(places(c, o)));
    // Quiet if standard output is a terminal: the line would mix with the contents.
    ProgressLine line("cat " + o.name, ~0ull, ::isatty(1) == 1);
    GN_TRY(write_object(c, o, *out, line));
    return kOk;
}

Result<int> get(const Context& c, const ObjectOptions& o) {
    if (o.file == "-") return cat(c, o);  // as `put -` reads standard input
    const std::string target = o.file_given ? o.file : o.name;
    if (target.empty())
        return error(Errc::kInvalidArgument,
                     "the name of the file to write is empty; leave FILE out to write to '{}'", o.name);
    GN_TRY(daemon::check_name("name", o.name));  // before it names a file
    GN_ASSIGN(const std::unique_ptr<TargetFile> file, TargetFile::at(target, places(c, o)));
    ProgressLine line("get " + o.name, ~0ull);
    GN_ASSIGN(const ObjectGot got, write_object(c, o, *file, line));
    if (file->is_standard_output()) return kOk;
    c.out.document(
        {{"name", o.name}, {"bytes", got.bytes}, {"file", target}, {"older_blocks", got.older_blocks}});
    c.out.text(fmt::format("{}: {} written to {}\n", o.name, format_bytes(got.bytes), target));
    return kOk;
}

Result<int> ls(const Context& c, const ObjectOptions& o) {
    GN_ASSIGN(const std::unique_ptr<ObjectStore> store, open(c, o, false));
    GN_ASSIGN(const std::vector<ObjectInfo> all, store->list());
    json objects = json::array();
    std::vector<std::vector<std::string>> rows;
    for (const ObjectInfo& object : all) {
        objects.push_back({{"name", object.name}, {"bytes", object.bytes}, {"replicas", object.replicas}});
        rows.push_back({format_count(object.bytes), fmt::format("{}", object.replicas), object.name});
    }
    c.out.document({{"objects", objects}});
    c.out.text(table({"BYTES", "REPLICAS", "NAME"}, rows, {true, true, false}));
    return kOk;
}

Result<int> rm(const Context& c, const ObjectOptions& o) {
    GN_ASSIGN(const std::unique_ptr<ObjectStore> store, open(c, o, false));
    GN_TRY(store->remove(o.name));
    c.out.document({{"removed", o.name}});
    c.out.text(fmt::format("{} removed\n", o.name));
    return kOk;
}

}  // namespace

void add_object_commands(CLI::App& app, Context& context) {
    auto o = std::make_shared<ObjectOptions>();
    const auto add = [&, o](const char* name, const char* what,
                            Result<int> (*run)(const Context&, const ObjectOptions&)) {
        CLI::App* command = app.add_subcommand(name, what);
        CLI::Option* folder = command->add_option(
            "--store", o->store,
            "folder of an array that no gnstord serves; this command opens its SSDs itself");
        command
            ->add_option("--address", o->address,
                         "IP address of this command on the udp wire, for an array that other processes "
                         "serve (--array)")
            ->excludes(folder);
        command->callback([&context, o, run] {
            context.action = [&context, o, run] {
                const Result<int> done = run(context, *o);
                return done.ok() ? *done : context.out.fail(done.error());
            };
        });
        return command;
    };
    CLI::App* store = add("put", "store a file", put);
    store->add_option("FILE", o->file, "file to store; - reads standard input")->required();
    store
        ->add_option(
            "NAME", o->name,
            "name of the stored object, 1 to 63 characters of [A-Za-z0-9._-]; default: the name of the file")
        ->each([o](const std::string&) { o->name_given = true; });
    store->add_option("--ssds", o->ssds, "number of SSDs of a new store")
        ->check(CLI::Range(1, 64))
        ->capture_default_str();
    store->add_option("--capacity", o->capacity, "capacity of each SSD of a new store")
        ->check(size_text())
        ->capture_default_str();
    const auto takes_older = [o](CLI::App* command) {
        command->add_flag(
            "--older", o->older,
            "if the newest version of a block is torn by a power cut or corrupt on every replica, read its "
            "older version, with a warning; without this flag that is an error");
    };
    CLI::App* fetch = add("get", "write a stored object to a file", get);
    fetch->add_option("NAME", o->name, "name of the stored object")->required();
    fetch->add_option("FILE", o->file, "file to write, or - for standard output; default: NAME")
        ->each([o](const std::string&) { o->file_given = true; });
    takes_older(fetch);
    CLI::App* show = add("cat", "write a stored object to standard output", cat);
    show->add_option("NAME", o->name, "name of the stored object")->required();
    takes_older(show);
    add("ls", "list the stored objects", ls);
    add("rm", "remove a stored object", rm)
        ->add_option("NAME", o->name, "name of the stored object")
        ->required();
}

}  // namespace gnstor::cli
