// object_commands.cpp: gnstor put, get, cat, ls, rm: whole files in an array that others serve (--array, or
// the default socket), or in one that is kept in a folder (--store) and needs no daemon.
#include "cli/cli.hpp"
#include "cli/target_file.hpp"

#include <gnstor/base/log.hpp>
#include <gnstor/base/units.hpp>

#include <unistd.h>

#include <fstream>
#include <iostream>

namespace gnstor::cli {
namespace {

using nlohmann::json;

struct ObjectOptions {
    std::string store, address, name, file, capacity = "1GiB";
    std::uint32_t ssds = 4;
    bool older = false;
};

/// Said once, to people alone: which wire a command goes by.
void say_wire(const Context& c, const std::string& wire) {
    if (!c.out.json) fmt::print(stderr, "wire: {}\n", wire);
}

Result<std::unique_ptr<ObjectStore>> open(const Context& c, const ObjectOptions& o, bool create) {
    if (o.store.empty()) {
        RemoteArrayOptions remote;
        remote.array = c.array.empty() ? "unix:" + c.socket_path().string() : c.array;
        remote.token_file = c.token_path().string();
        remote.address = o.address;
        std::string wire;
        auto store = open_remote_object_store(remote, wire);
        if (store.ok()) say_wire(c, wire);
        return store;
    }
    ArrayOptions options;
    options.directory = o.store;
    options.ssds = o.ssds;
    GN_ASSIGN(options.ssd_capacity_bytes, parse_bytes(o.capacity));
    std::error_code failed;
    if (!create && !std::filesystem::is_directory(o.store, failed))
        return error(Errc::kNotFound, "there is no store in {}; 'gnstor put --store {} FILE' begins one",
                     o.store, o.store);
    return open_object_store(options, create);
}

Result<int> put(const Context& c, const ObjectOptions& o) {
    std::error_code failed;
    if (o.file != "-" && std::filesystem::is_directory(o.file, failed))
        return error(Errc::kInvalidArgument, "{} is a folder; put its files one by one, or as an archive",
                     o.file);
    std::ifstream file;
    if (o.file != "-") file.open(o.file, std::ios::binary);
    if (o.file != "-" && !file)
        return error(Errc::kNotFound, "{} cannot be read: {}", o.file, std::strerror(errno));
    std::uint64_t bytes = ~0ull;
    if (o.file != "-" && std::filesystem::is_regular_file(o.file, failed))
        bytes = std::filesystem::file_size(o.file, failed);
    const std::string name = !o.name.empty() ? o.name : std::filesystem::path(o.file).filename().string();
    if (o.file == "-" && o.name.empty())
        return error(Errc::kInvalidArgument,
                     "what is read from standard input needs a name: gnstor put - NAME");
    GN_TRY(daemon::check_name("name", name));
    GN_ASSIGN(const std::unique_ptr<ObjectStore> store, open(c, o, true));
    std::uint64_t moved = 0;
    {
        ProgressLine line("put " + name, bytes);
        GN_TRY(store->put(name, o.file == "-" ? std::cin : file, bytes,
                          [&](std::uint64_t n, std::uint64_t total) { line.at(moved = n, total); }));
    }
    if (bytes != ~0ull) moved = bytes;
    c.out.document({{"name", name}, {"bytes", moved}});
    c.out.text(fmt::format("{}: {} stored\n", name, format_bytes(moved)));
    return kOk;
}

void say_older(const std::string& name, const ObjectGot& got) {
    if (got.older_blocks != 0)
        log_warn(
            "'{}': {} of its blocks are older versions, or zeroes where there was none: the newest ones were "
            "torn by a power cut, or have rotted, on every replica",
            name, got.older_blocks);
}

Result<int> get(const Context& c, const ObjectOptions& o) {
    const std::string target = o.file.empty() ? o.name : o.file;
    GN_TRY(daemon::check_name("name", o.name));  // before it is a file's
    GN_ASSIGN(const std::unique_ptr<TargetFile> file, TargetFile::at(target));
    GN_ASSIGN(const std::unique_ptr<ObjectStore> store, open(c, o, false));
    ProgressLine line("get " + o.name, ~0ull);
    const Result<ObjectGot> got = store->get(
        o.name, file->stream(), o.older, [&](std::uint64_t n, std::uint64_t total) { line.at(n, total); });
    GN_TRY(file->state());  // it knows more than the stream that it failed
    if (!got.ok()) return got.error();
    GN_TRY(file->finish());
    say_older(o.name, *got);
    if (file->is_standard_output()) return kOk;
    c.out.document(
        {{"name", o.name}, {"bytes", got->bytes}, {"file", target}, {"older_blocks", got->older_blocks}});
    c.out.text(fmt::format("{}: {} written to {}\n", o.name, format_bytes(got->bytes), target));
    return kOk;
}

Result<int> cat(const Context& c, const ObjectOptions& o) {
    GN_ASSIGN(const std::unique_ptr<ObjectStore> store, open(c, o, false));
    // Not between the lines of what goes to the same terminal.
    ProgressLine line("cat " + o.name, ~0ull, ::isatty(1) == 1);
    GN_ASSIGN(const ObjectGot got,
              store->get(o.name, std::cout, o.older,
                         [&](std::uint64_t n, std::uint64_t total) { line.at(n, total); }));
    std::cout.flush();
    say_older(o.name, got);
    if (!std::cout) return error(Errc::kIo, "standard output took not all of '{}'", o.name);
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
            "--store", o->store, "folder of an array that nobody serves; this command opens it");
        command
            ->add_option(
                "--address", o->address,
                "IP address of this command on the udp wire, for an array that others serve (--array)")
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
    store->add_option("FILE", o->file, "what to store; - reads standard input")->required();
    store->add_option("NAME", o->name, "its name there; default: the file's");
    store->add_option("--ssds", o->ssds, "SSDs of a store that is begun")
        ->check(CLI::Range(1, 64))
        ->capture_default_str();
    store->add_option("--capacity", o->capacity, "of each SSD of a store that is begun")
        ->check(size_text())
        ->capture_default_str();
    const auto takes_older = [o](CLI::App* command) {
        command->add_flag(
            "--older", o->older,
            "where the newest version of a block was torn by a power cut, or has rotted, on every "
            "replica: its older one, with a warning; without this it is an error");
    };
    CLI::App* fetch = add("get", "write a stored file", get);
    fetch->add_option("NAME", o->name, "its name there")->required();
    fetch->add_option("FILE", o->file, "where to write it; default: its name");
    takes_older(fetch);
    CLI::App* show = add("cat", "a stored file to standard output", cat);
    show->add_option("NAME", o->name, "its name there")->required();
    takes_older(show);
    add("ls", "what is stored", ls);
    add("rm", "remove a stored file", rm)->add_option("NAME", o->name, "its name there")->required();
}

}  // namespace gnstor::cli
