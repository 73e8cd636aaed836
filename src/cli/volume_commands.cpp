// volume_commands.cpp: gnstor volume create|list|show|share|unshare|release|delete.
#include "cli/cli.hpp"

#include <gnstor/base/units.hpp>

#include "daemon/http/api_json.hpp"

namespace gnstor::cli {
namespace {

using nlohmann::json;

struct VolumeOptions {
    std::string name, size, chunk = "64KiB", with;
    std::uint32_t replicas = 2;
    bool any_writer = false;
};

/// Those that may read the volume, besides its owner.
std::string readers_of(const nvme::VolumeRecord& r) {
    if ((r.flags & nvme::kVolumeWorldReadable) != 0) return "everybody";
    std::string readers;
    for (std::uint32_t i = 0; i < r.reader_count; ++i)
        readers += fmt::format("{}{}", i == 0 ? "clients " : ", ", r.readers[i]);
    return readers;
}

std::string describe(const nvme::VolumeRecord& r) {
    std::string text = fmt::format(
        "{} (VID {})\n  capacity   {} ({} bytes), length {} bytes\n  placement  {} replicas, chunks of {}\n",
        r.name, r.geometry.volume, format_bytes(r.geometry.capacity_blocks * 4096),
        r.geometry.capacity_blocks * 4096, r.byte_length, r.geometry.replicas,
        format_bytes(4096ull << r.geometry.chunk_shift));
    text += fmt::format("  owner      {} (client {})\n  epoch      {}, {}\n", r.owner_name, r.owner, r.epoch,
                        r.writer == 0 ? std::string("not open for writing")
                                      : fmt::format("open for writing by client {}", r.writer));
    const std::string readers = readers_of(r);
    text += fmt::format("  readers    {}\n  writers    {}\n", readers.empty() ? "the owner" : readers,
                        (r.flags & nvme::kVolumeAnyWriter) != 0 ? "any client, one at a time" : "the owner");
    return text;
}

Result<nvme::VolumeRecord> find(daemon::HttpControlPlane& control, const std::string& name) {
    GN_ASSIGN(const std::vector<nvme::VolumeRecord> all, control.list_volumes());
    for (const nvme::VolumeRecord& record : all)
        if (name == record.name) return record;
    return error(Errc::kNotFound, "there is no volume '{}'; 'gnstor volume list' lists the volumes", name);
}

Result<int> create(const Context& c, const VolumeOptions& o) {
    auto control = c.control();
    client::CreateVolume request;
    request.name = o.name;
    GN_ASSIGN(request.capacity_bytes, parse_bytes(o.size));
    GN_ASSIGN(const std::uint64_t chunk, parse_bytes(o.chunk));
    request.chunk_bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(chunk, 0xFFFFFFFFu));
    request.replicas = o.replicas;
    request.any_writer = o.any_writer;
    GN_ASSIGN(const client::ClientIdentity me, control.register_client(c.as));
    GN_ASSIGN(const nvme::VolumeRecord record, control.create_volume(me.id, request));
    c.out.document(daemon::to_json(record));
    c.out.text(fmt::format("volume '{}' of {} with {} replicas was created (VID {})\n", record.name,
                           format_bytes(record.geometry.capacity_blocks * 4096), record.geometry.replicas,
                           record.geometry.volume));
    return kOk;
}

Result<int> list(const Context& c) {
    auto control = c.control();
    GN_ASSIGN(const std::vector<nvme::VolumeRecord> all, control.list_volumes());
    json volumes = json::array();
    std::vector<std::vector<std::string>> rows;
    for (const nvme::VolumeRecord& r : all) {
        volumes.push_back(daemon::to_json(r));
        rows.push_back({fmt::format("{}", r.geometry.volume), r.name,
                        format_bytes(r.geometry.capacity_blocks * 4096), format_bytes(r.byte_length),
                        fmt::format("{}", r.geometry.replicas), r.owner_name, fmt::format("{}", r.epoch),
                        r.writer == 0 ? "-" : fmt::format("client {}", r.writer)});
    }
    c.out.document({{"volumes", volumes}});
    c.out.text(table({"VID", "NAME", "CAPACITY", "LENGTH", "REPLICAS", "OWNER", "EPOCH", "WRITER"}, rows,
                     {true, false, true, true, true, false, true, false}));
    return kOk;
}

Result<int> show(const Context& c, const VolumeOptions& o) {
    auto control = c.control();
    GN_ASSIGN(const nvme::VolumeRecord record, find(control, o.name));
    c.out.document(daemon::to_json(record));
    c.out.text(describe(record));
    return kOk;
}

/// With a client's token, only clients that are there are found: it may register none but its own.
Result<nvme::ClientId> reader_named(daemon::HttpControlPlane& control, const std::string& name) {
    const Result<client::ClientIdentity> registered = control.register_client(name);
    if (registered.ok()) return registered->id;
    if (registered.error().code != Errc::kPermission) return registered.error();
    GN_ASSIGN(const json answer, control.get("/v1/clients"));
    for (const json& client : answer.at("clients"))
        if (client.at("name") == name && !client.value("removed", false))
            return client.at("id").get<nvme::ClientId>();
    return registered.error();
}

Result<int> share(const Context& c, const VolumeOptions& o) {
    auto control = c.control();
    GN_ASSIGN(const client::ClientIdentity me, control.register_client(c.as));
    nvme::ClientId reader = 0;
    if (!o.with.empty()) {
        GN_ASSIGN(reader, reader_named(control, o.with));
    }
    GN_TRY(control.share_volume(me.id, o.name, reader));
    GN_ASSIGN(const nvme::VolumeRecord record, find(control, o.name));
    c.out.document(daemon::to_json(record));
    c.out.text(fmt::format("volume '{}' can now be read by {}\n", o.name,
                           o.with.empty() ? "everybody" : "'" + o.with + "'"));
    return kOk;
}

/// Also one that was removed: it may be let in again.
Result<nvme::ClientId> client_named(daemon::HttpControlPlane& control, const std::string& name) {
    GN_ASSIGN(const json answer, control.get("/v1/clients"));
    for (const json& client : answer.at("clients"))
        if (client.at("name") == name) return client.at("id").get<nvme::ClientId>();
    return error(Errc::kNotFound, "there is no client '{}'; 'gnstor client list' lists the clients", name);
}

Result<int> unshare(const Context& c, const VolumeOptions& o) {
    auto control = c.control();
    GN_ASSIGN(const client::ClientIdentity me, control.register_client(c.as));
    nvme::ClientId reader = 0;
    if (!o.with.empty()) {
        GN_ASSIGN(reader, client_named(control, o.with));
    }
    GN_TRY(control.unshare_volume(me.id, o.name, reader));
    GN_ASSIGN(const nvme::VolumeRecord record, find(control, o.name));
    c.out.document(daemon::to_json(record));
    const std::string readers = readers_of(record);
    c.out.text(fmt::format("volume '{}' is no longer shared with {}; it can be read by its owner{}\n", o.name,
                           o.with.empty() ? "everybody" : "'" + o.with + "'",
                           readers.empty() ? "" : " and " + readers));
    return kOk;
}

Result<int> release(const Context& c, const VolumeOptions& o) {
    auto control = c.control();
    GN_ASSIGN(const client::ClientIdentity me, control.register_client(c.as));
    GN_ASSIGN(const nvme::VolumeRecord before, find(control, o.name));
    if (before.writer != 0 && before.writer != me.id)
        return error(
            Errc::kPermission,
            "volume '{}' is open for writing by client {}, not by '{}'; only that client can release it",
            o.name, before.writer, c.as);
    const bool held = before.writer == me.id;
    if (held) GN_TRY(control.release_volume(me.id, before.geometry.volume, before.epoch, ~0ull));
    GN_ASSIGN(const nvme::VolumeRecord record, find(control, o.name));
    c.out.document(daemon::to_json(record));
    c.out.text(held ? fmt::format("volume '{}' is released; epoch {} is closed\n", o.name, before.epoch)
                    : fmt::format("volume '{}' was not open for writing; nothing was released\n", o.name));
    return kOk;
}

Result<int> remove(const Context& c, const VolumeOptions& o) {
    auto control = c.control();
    GN_ASSIGN(const client::ClientIdentity me, control.register_client(c.as));
    GN_TRY(control.delete_volume(me.id, o.name));
    c.out.document({{"deleted", o.name}});
    c.out.text(fmt::format("volume '{}' is deleted\n", o.name));
    return kOk;
}

}  // namespace

void add_volume_commands(CLI::App& app, Context& context) {
    auto o = std::make_shared<VolumeOptions>();
    CLI::App* volume = app.add_subcommand("volume", "volumes of the array");
    volume->require_subcommand(1);
    const auto add = [&, o](const char* name, const char* what,
                            Result<int> (*run)(const Context&, const VolumeOptions&)) {
        CLI::App* command = volume->add_subcommand(name, what);
        command->add_option("NAME", o->name, "name of the volume")->required();
        command->callback([&context, o, run] {
            context.action = [&context, o, run] {
                const Result<int> done = run(context, *o);
                return done.ok() ? *done : context.out.fail(done.error());
            };
        });
        return command;
    };
    CLI::App* make = add("create", "create a volume, owned by the client of --as", create);
    make->add_option("SIZE", o->size,
                     "capacity, as 64MiB or 1G; volumes are thin, so it may exceed what the SSDs hold")
        ->required()
        ->check(size_text());
    make->add_option("--replicas", o->replicas, "number of SSDs that hold each chunk")
        ->check(CLI::Range(1, 4))
        ->capture_default_str();
    make->add_option("--chunk", o->chunk, "unit of placement, 4KiB to 1MiB")
        ->check(size_text())
        ->capture_default_str();
    make->add_flag("--any-writer", o->any_writer, "any client may open it for writing, one at a time");
    volume->add_subcommand("list", "list all volumes")->callback([&context] {
        context.action = [&context] {
            const Result<int> done = list(context);
            return done.ok() ? *done : context.out.fail(done.error());
        };
    });
    add("show", "show a volume", show);
    add("share", "let other clients read a volume", share)
        ->add_option("--with", o->with, "client that may read the volume; default: all clients");
    add("unshare", "end that a client may read a volume; without CLIENT, that all clients may", unshare)
        ->add_option("CLIENT", o->with, "client that may not read the volume any more");
    add("release", "end the writing of the client of --as, and close its epoch", release);
    add("delete", "delete a volume and its data", remove);
}

}  // namespace gnstor::cli
