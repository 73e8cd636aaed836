// array_commands.cpp: gnstor up, status, ssd list.
#include "cli/background_process.hpp"
#include "cli/cli.hpp"
#include "cli/daemon_process.hpp"
#include "cli/node_states.hpp"
#include "cli/nodes_plan.hpp"
#include "cli/process.hpp"
#include "cli/ssd_options.hpp"
#include "cli/tls_options.hpp"
#include "embedded/node_key.hpp"

#include <gnstor/base/private_file.hpp>
#include <gnstor/base/say.hpp>
#include <gnstor/base/shell_word.hpp>
#include <gnstor/base/units.hpp>

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace gnstor::cli {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

struct UpOptions {
    std::uint32_t ssds = 4;
    std::string capacity = "1GiB";
    std::uint64_t lease_ms = 300'000;
    std::uint32_t spare_after_s = 600;
    ScrubSettings scrub{};
    ArrayOptions ssd;  ///< options of the SSDs except number and capacity
    std::uint32_t wait_s = 60;
    std::chrono::steady_clock::time_point until{};  ///< deadline of all waits: start + wait_s
    bool foreground = false, quarantine = false;
    bool ssds_given = false, capacity_given = false;  ///< the option was given
    std::vector<std::string> of_the_daemon;           ///< options given that count only when gnstord starts
    bool service_units_given = false;
    bool existed = true;                         ///< the array existed before this command
    std::uint32_t nodes = 0;                     ///< number of node processes; 0: not given
    std::vector<std::string> node_addresses;     ///< of the nodes; empty: chosen
    std::string listen;                          ///< TCP address of gnstord
    TlsOptions tls;                              ///< of that address
    std::vector<PlannedNode> plan;               ///< the array's nodes: plan_nodes()
    std::shared_ptr<BackgroundProcess> started;  ///< gnstord; null: it ran already
};

/// Options that count only when gnstord starts; one that runs already keeps those of its own start.
constexpr std::array kOfTheDaemon = {
    "--lease-ms",         "--spare-after", "--scrub", "--durability", "--direct",   "--profile",
    "--quarantine-store", "--listen",      "--tls",   "--no-tls",     "--tls-cert", "--tls-key"};

std::filesystem::path log_file(const Context& c) {
    return std::filesystem::path(c.directory) / "gnstord.log";
}

/// A path for gnstord's socket in a folder that this user may write: the requested one, else a usual one.
/// Empty: none found.
std::string writable_socket(const Context& c) {
    std::vector<std::filesystem::path> places{"/run/gnstor.sock"};
    if (!c.socket.empty()) places.insert(places.begin(), c.socket);
    if (const char* own = std::getenv("XDG_RUNTIME_DIR"); own != nullptr && *own != 0)
        places.push_back(std::filesystem::path(own) / "gnstor.sock");
    for (const std::filesystem::path& place : places) {
        const std::filesystem::path folder = place.has_parent_path() ? place.parent_path() : ".";
        if (::access(folder.c_str(), W_OK) == 0) return place.string();
    }
    return "";
}

/// Advice for a folder on a read-only file system: gnstord in the foreground writes no log, and its socket
/// can lie in another folder.
std::string how_to_serve_read_only(const Context& c) {
    const std::string socket = writable_socket(c);
    return fmt::format(
        "make the file system writable, or serve the array for reading by `gnstor up --foreground --dir {} "
        "--socket {}`{}",
        shell_word(c.directory), socket.empty() ? "PATH" : shell_word(socket),
        socket.empty() ? ", with a PATH in a folder that you may write" : "");
}

bool healthy(const Context& c) {
    return c.control(2s).get("/healthz").ok();
}

std::vector<std::string> daemon_arguments(const Context& c, const UpOptions& o) {
    std::vector<std::string> words{"--dir",         c.directory,
                                   "--ssds",        std::to_string(o.ssds),
                                   "--capacity",    o.capacity,
                                   "--lease-ms",    std::to_string(o.lease_ms),
                                   "--spare-after", std::to_string(o.spare_after_s),
                                   "--scrub-every", std::to_string(o.scrub.every_days),
                                   "--scrub-rate",  std::to_string(o.scrub.mib_per_s),
                                   "--socket",      c.socket_path().string()};
    for (std::string& word : ssd_arguments(o.ssd)) words.push_back(std::move(word));
    std::vector<std::string> addresses;
    for (const PlannedNode& node : o.plan) addresses.push_back(node.address);
    if (!addresses.empty())
        words.insert(words.end(), {"--nodes", fmt::format("{}", fmt::join(addresses, ",")), "--node-key",
                                   (std::filesystem::path(c.directory) / embedded::kNodeKeyFile).string()});
    if (!o.listen.empty()) words.insert(words.end(), {"--listen", o.listen});
    for (std::string& word : tls_arguments(o.tls)) words.push_back(std::move(word));
    if (o.quarantine) words.emplace_back("--quarantine-store");
    return words;
}

int run_in_foreground(const Context& c, const UpOptions& o) {
    const std::string program = find_daemon().string();
    std::vector<std::string> words = daemon_arguments(c, o);
    words.insert(words.begin(), program);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execv(program.c_str(), argv.data());
    return c.out.fail(error(Errc::kIo,
                            "{} cannot be started: {}; set the environment variable GNSTORD to the path of "
                            "the program gnstord",
                            program, std::strerror(errno)));
}

/// Properties of the array as gnstord reports them, with a note for each given option that has no effect:
/// options for a new array on an existing one, options for gnstord's start on a running one.
Result<json> describe_array(const Context& c, const UpOptions& o, bool started) {
    GN_ASSIGN(const json answer, c.control().get("/v1/ssds"));
    json ssds = answer.at("ssds");
    ssds.erase(std::remove_if(ssds.begin(), ssds.end(),
                              [](const json& ssd) { return ssd.at("state") == "missing"; }),
               ssds.end());
    std::uint64_t each = 0;
    for (const json& ssd : ssds) each = std::max(each, ssd.at("capacity_bytes").get<std::uint64_t>());
    json notes = json::array();
    if (o.ssds_given && o.ssds * std::max<std::size_t>(1, o.plan.size()) != ssds.size())
        notes.push_back(
            fmt::format("the array has {} SSDs; --ssds {} has no effect, because it applies only when an "
                        "array is created",
                        ssds.size(), o.ssds));
    GN_ASSIGN(const std::uint64_t asked, parse_bytes(o.capacity));
    if (o.capacity_given && each != asked)
        notes.push_back(
            fmt::format("the array's SSDs have {} each; --capacity {} has no effect, because it applies only "
                        "when an array is created",
                        format_bytes(each), o.capacity));
    if (o.service_units_given && o.existed)
        notes.push_back(
            "the array's SSDs keep their service units; --service-units has no effect, because it applies "
            "only when an array is created");
    if (!started && !o.of_the_daemon.empty())
        notes.push_back(
            fmt::format("gnstord keeps the options that it was started with; to apply {}, stop it first "
                        "('gnstor down'), then run 'gnstor up' again",
                        fmt::join(o.of_the_daemon, ", ")));
    GN_ASSIGN(const json status, c.control().get("/v1/status"));
    json about{{"ssds", ssds.size()},
               {"ssd_capacity_bytes", each},
               {"notes", notes},
               {"warnings", status.at("warnings")},
               {"read_only", status.value("read_only", std::string())}};
    if (status.contains("tcp")) about["tcp"] = status.at("tcp");
    return about;
}

/// The TCP interface in a document of gnstord, and the certificate that clients may pin; empty: none.
std::string describe_tcp(const json& document) {
    if (!document.contains("tcp")) return "";
    const json& tcp = document.at("tcp");
    if (!tcp.contains("certificate_fingerprint"))
        return fmt::format("TCP: {}, without TLS\n", tcp.at("url").get<std::string>());
    return fmt::format("TCP: {}, certificate {} until {}\n", tcp.at("url").get<std::string>(),
                       tcp.at("certificate_fingerprint").get<std::string>(),
                       tcp.at("certificate_expires").get<std::string>());
}

int show_up(const Context& c, const UpOptions& o, bool started, pid_t pid) {
    Result<json> about = describe_array(c, o, started);
    if (!about.ok()) return c.out.fail(about.error());
    const std::vector<NodeState> nodes = node_states(c.directory, o.plan);
    if (!nodes.empty()) (*about)["nodes"] = to_json(nodes);
    const std::string socket = c.socket_path().string();
    json document{{"state", "up"}, {"started", started}, {"socket", socket}, {"pid", pid}};
    document.update(*about);
    c.out.document(document);
    std::string text =
        fmt::format("gnstord is {}up at {} with {} SSDs of {} in {} (process {})\n",
                    started ? "" : "already ", socket, about->at("ssds").dump(),
                    format_bytes(about->at("ssd_capacity_bytes").get<std::uint64_t>()), c.directory, pid);
    text += describe_tcp(*about) + describe(nodes);
    if (const std::string why = about->at("read_only").get<std::string>(); !why.empty())
        text += "READ-ONLY: " + why + "\n";
    if (!nodes.empty())
        text += fmt::format("next: `gnstor put FILE --dir {0}`, `gnstor status --dir {0}`; logs are in {1}\n",
                            shell_word(c.directory), c.directory);
    for (const json& note : about->at("notes")) text += "note: " + note.get<std::string>() + "\n";
    for (const json& warning : about->at("warnings")) text += "warning: " + warning.get<std::string>() + "\n";
    c.out.text(text);
    return kOk;
}

/// Time left of --wait; at least 1 s, enough for one poll.
std::chrono::milliseconds left(const UpOptions& o) {
    const auto now = std::chrono::steady_clock::now();
    return std::max<std::chrono::milliseconds>(
        1s, std::chrono::duration_cast<std::chrono::milliseconds>(o.until - now));
}

/// Whether gnstord reports a slot as missing. Such an SSD does not come back by itself: an operator has to bring
/// back its store, or to replace it.
bool an_ssd_is_missing(const Context& c) {
    const Result<json> answer = c.control(2s).get("/v1/ssds");
    return answer.ok() && std::ranges::any_of(answer->at("ssds"),
                                              [](const json& ssd) { return ssd.at("state") == "missing"; });
}

/// Waits until the map is in force: no command works before. On a timeout, or if an SSD has been missing for
/// some seconds, gnstord keeps running, because the SSD may come later.
Result<void> wait_until_it_serves(const Context& c, const UpOptions& o, pid_t pid) {
    // gnstord looks every second, and a node that was started again needs a while.
    constexpr auto kMissing = 4s;
    std::string missing;
    bool ended = false, said = false, in_vain = false;
    auto complete = std::chrono::steady_clock::now();
    const bool serves = wait_until(left(o), [&] {
        ended = o.started ? o.started->ended() : !alive(pid);
        if (ended) return true;
        const Result<json> status = c.control(2s).get("/v1/status");
        if (!status.ok()) {
            missing = status.error().message;
            return false;
        }
        if (status->at("map_in_force").get<bool>()) return true;
        missing = fmt::format("{}", fmt::join(status->at("warnings").get<std::vector<std::string>>(), "; "));
        if (!missing.empty() && !std::exchange(said, true) && !c.out.json)
            say(stderr, "gnstord is up, but the array is not ready yet: {}\n", missing);
        if (!an_ssd_is_missing(c)) complete = std::chrono::steady_clock::now();
        in_vain = std::chrono::steady_clock::now() - complete > kMissing;
        return in_vain;
    });
    if (ended)
        return error(Errc::kIo, "gnstord (process {}) ended before it served: {}", pid,
                     o.started ? o.started->why_it_ended() : "see " + log_file(c).string());
    if (in_vain)
        return error(Errc::kState,
                     "gnstord serves {} and keeps running, but the array map is not in force: {}",
                     c.directory, missing);
    if (serves) return {};
    return error(Errc::kTimedOut,
                 "gnstord serves {} and keeps running, but the array map was not in force within {} s ({}); "
                 "bring back the missing SSDs or nodes: 'gnstor status' shows when the map is in force",
                 c.directory, o.wait_s, missing);
}

int already_up(const Context& c, const UpOptions& o) {
    const pid_t listener = listener_of(c.socket_path()).value_or(0);
    const std::optional<pid_t> of_folder = daemon_of(c.directory);
    if (of_folder != listener)
        return c.out.fail(error(Errc::kBusy,
                                "gnstord (process {}) answers at {}, but it serves another folder than {}; "
                                "choose another --socket, or stop it with `gnstor down --socket {}`",
                                listener, c.socket_path().string(), c.directory,
                                shell_word(c.socket_path().string())));
    if (const Result<void> serves = wait_until_it_serves(c, o, listener); !serves.ok())
        return c.out.fail(serves.error());
    return show_up(c, o, false, listener);
}

/// Determines the array's nodes: an existing array keeps its plan, a new one gets the requested nodes.
Result<void> plan_nodes(const Context& c, UpOptions& o) {
    const std::filesystem::path folder = c.directory;
    GN_ASSIGN(o.plan, read_plan(folder));
    std::error_code failed;
    const bool one_process = std::filesystem::exists(folder / "ssd-0.store", failed);
    o.existed = one_process || !o.plan.empty();
    if (o.nodes == 0 && !o.node_addresses.empty())
        o.nodes = static_cast<std::uint32_t>(o.node_addresses.size());
    if (o.nodes != 0 && one_process)
        return error(Errc::kExists,
                     "the array in {} was created without nodes, so gnstord itself serves its SSDs; create "
                     "an array with nodes in another folder (--dir)",
                     c.directory);
    if (o.nodes != 0 && !o.plan.empty() && o.nodes != o.plan.size())
        return error(Errc::kExists,
                     "the array in {} has {} nodes, not {}; leave --nodes out, or create another array in "
                     "another folder (--dir)",
                     c.directory, o.plan.size(), o.nodes);
    if (!o.plan.empty() && !o.node_addresses.empty()) {
        std::vector<std::string> kept;
        for (const PlannedNode& node : o.plan) kept.push_back(node.address);
        if (kept != o.node_addresses)
            return error(
                Errc::kExists,
                "the nodes of the array in {} keep their addresses, {}; leave --node-addresses out, or "
                "create another array in another folder (--dir)",
                c.directory, fmt::join(kept, ", "));
    }
    if (o.nodes == 0 || !o.plan.empty()) return {};
    // Checked before nodes make their stores and before the plan is written.
    if (std::uint64_t{o.nodes} * o.ssds > placement::kMaxSlots)
        return error(Errc::kInvalidArgument,
                     "{} nodes of {} SSDs each are too many: an array has at most {} SSDs; choose fewer "
                     "nodes (--nodes) or SSDs (--ssds)",
                     o.nodes, o.ssds, placement::kMaxSlots);
    GN_ASSIGN(o.plan, make_plan(o.nodes, o.node_addresses));
    return write_plan(folder, o.plan);
}

Result<void> run_nodes(const Context& c, UpOptions& o) {
    if (o.plan.empty()) return {};
    o.ssd.ssds = o.ssds;
    GN_ASSIGN(o.ssd.ssd_capacity_bytes, parse_bytes(o.capacity));
    GN_TRY(start_nodes(c.directory, o.plan, o.ssd, std::chrono::seconds(o.wait_s)));
    return {};
}

/// One `gnstor up` at a time plans and starts the processes of a folder: two would choose two plans for one
/// new array and overwrite each other's plan file. Waits for the other one until the deadline (kBusy). Null
/// where the lock file cannot be created, on a full disk or a read-only file system: the plan cannot be
/// written there either, and that error is reported.
Result<std::unique_ptr<LockedFile>> lock_start(const Context& c, const UpOptions& o) {
    Result<std::unique_ptr<LockedFile>> lock =
        LockedFile::take(std::filesystem::path(c.directory) / kStartLockFile,
                         fmt::format("another 'gnstor up' is starting the array in {}; wait until it has "
                                     "ended, or stop it",
                                     c.directory),
                         left(o));
    if (!lock.ok() && lock.error().code != Errc::kBusy) return std::unique_ptr<LockedFile>();
    if (lock.ok() && (*lock)->is_folder()) lock->reset();  // gnstord locks the folder itself then
    return lock;
}

int up(const Context& c, UpOptions o) {
    if (!c.array.empty())
        return c.out.fail(
            error(Errc::kInvalidArgument,
                  "'gnstor up' starts an array on this machine, but --array or GNSTOR_ARRAY names "
                  "{}; leave it out, or unset GNSTOR_ARRAY",
                  c.array));
    o.until = std::chrono::steady_clock::now() + std::chrono::seconds(o.wait_s);
    if (const Result<void> made = make_private_folder(c.directory); !made.ok())
        return c.out.fail(made.error());
    Result<std::unique_ptr<LockedFile>> starting = lock_start(c, o);
    if (!starting.ok()) return c.out.fail(starting.error());
    if (const Result<void> planned = plan_nodes(c, o); !planned.ok()) return c.out.fail(planned.error());
    // Also if gnstord runs already: a node that was killed is started again.
    if (const Result<void> running = run_nodes(c, o); !running.ok()) return c.out.fail(running.error());
    if (healthy(c)) return already_up(c, o);
    if (o.foreground) return run_in_foreground(c, o);
    Result<std::shared_ptr<BackgroundProcess>> started = BackgroundProcess::start(
        find_daemon(), daemon_arguments(c, o), log_file(c), how_to_serve_read_only(c));
    if (!started.ok()) return c.out.fail(started.error());
    o.started = std::move(started).value();
    const pid_t pid = o.started->pid();
    bool ended = false;
    const bool answered = wait_until(left(o), [&] {
        ended = o.started->ended();
        return ended || healthy(c);
    });
    if (ended) return c.out.fail(error(Errc::kIo, "gnstord did not start: {}", o.started->why_it_ended()));
    if (!answered) {
        ::kill(pid, SIGTERM);
        return c.out.fail(error(Errc::kTimedOut, "gnstord did not answer within {} s and was stopped; see {}",
                                o.wait_s, log_file(c).string()));
    }
    starting->reset();  // gnstord answers: a second `gnstor up` finds it and waits for the map by itself
    if (const Result<void> serves = wait_until_it_serves(c, o, pid); !serves.ok())
        return c.out.fail(serves.error());
    return show_up(c, o, true, pid);
}

int status(const Context& c) {
    // Only nodes of this folder are shown; for an array elsewhere, gnstord's warnings name missing SSDs.
    const bool here = c.array.empty() && (c.socket.empty() || c.directory_given);
    const Result<std::vector<PlannedNode>> plan =
        here ? read_plan(c.directory) : Result<std::vector<PlannedNode>>(std::vector<PlannedNode>{});
    const std::vector<NodeState> nodes =
        plan.ok() ? node_states(c.directory, *plan) : std::vector<NodeState>{};
    const std::vector<GatewayProcess> gateways =
        here ? gateway_processes(c.directory) : std::vector<GatewayProcess>{};
    Result<json> answer = c.control().get("/v1/status");
    if (!answer.ok()) {
        c.out.text(describe(nodes) + describe(gateways));
        return c.out.fail(answer.error());
    }
    if (!nodes.empty()) (*answer)["nodes"] = to_json(nodes);
    if (!gateways.empty()) (*answer)["gateways"] = to_json(gateways);
    c.out.document(*answer);
    const json& s = *answer;
    std::string text =
        fmt::format("term {}, map {} {}\n{} SSDs, {} of user data, {} provisioned (volumes times replicas)\n",
                    s.at("term").dump(), s.at("map_version").dump(),
                    s.at("map_in_force").get<bool>() ? "in force" : "NOT in force", s.at("ssds").dump(),
                    format_bytes(s.at("capacity_bytes").get<std::uint64_t>()),
                    format_bytes(s.at("provisioned_bytes").get<std::uint64_t>()));
    text += fmt::format("{} volumes, {} clients, {} changes pending\n", s.at("volumes").dump(),
                        s.at("clients").dump(), s.at("pending_changes").dump());
    for (const json& lease : s.at("leases"))
        text += fmt::format("open for writing: {} by {} in epoch {}, lease ends in {} s\n",
                            lease.at("volume_name").get<std::string>(),
                            lease.at("client_name").get<std::string>(), lease.at("epoch").dump(),
                            lease.at("remaining_ms").get<std::uint64_t>() / 1000);
    if (s.contains("rebuild")) text += describe_rebuild(s.at("rebuild"));
    text += describe_tcp(s) + describe(nodes) + describe(gateways);
    for (const json& warning : s.at("warnings")) text += "warning: " + warning.get<std::string>() + "\n";
    if (const std::string why = s.value("read_only", std::string()); !why.empty())
        text += "READ-ONLY: " + why + "\n";
    if (const std::string health = s.value("health", std::string("ok")); health != "ok")
        text += fmt::format("health: {}; 'gnstor health' says what is wrong and what to do\n", health);
    if (!s.at("superseded").get<std::string>().empty())
        text += "warning: " + s.at("superseded").get<std::string>() + "\n";
    c.out.text(text);
    return kOk;
}

/// What gnstord reports as an SSD's trouble; if nothing, the bad pages that its scrub found.
std::string trouble_of(const json& ssd) {
    std::string trouble = ssd.at("trouble").get<std::string>();
    const json counters = ssd.value("counters", json::object());
    if (trouble.empty() && counters.value("scrub_bad_pages", std::uint64_t{0}) != 0)
        trouble = "bad pages found by the scrub: see gnstord.log";
    return trouble;
}

int list_ssds(const Context& c) {
    Result<json> answer = c.control().get("/v1/ssds");
    if (!answer.ok()) return c.out.fail(answer.error());
    c.out.document(*answer);
    std::vector<std::vector<std::string>> rows;
    for (const json& ssd : answer->at("ssds"))
        rows.push_back({ssd.contains("slot") ? ssd.at("slot").dump() : "-",
                        ssd.at("state").get<std::string>(), ssd.at("serial").get<std::string>(),
                        format_bytes(ssd.at("capacity_bytes").get<std::uint64_t>()),
                        ssd.at("uuid").get<std::string>(), trouble_of(ssd)});
    c.out.text(table({"SLOT", "STATE", "SERIAL", "CAPACITY", "UUID", "TROUBLE"}, rows,
                     {true, false, false, true, false, false}));
    return kOk;
}

}  // namespace

void add_array_commands(CLI::App& app, Context& context) {
    auto o = std::make_shared<UpOptions>();
    CLI::App* start = app.add_subcommand("up", "start an array of emulated SSDs on this machine");
    CLI::Option* ssds = start->add_option("--ssds", o->ssds, "how many SSDs a new array gets")
                            ->check(CLI::Range(1, 64))
                            ->capture_default_str();
    CLI::Option* capacity =
        start->add_option("--capacity", o->capacity, "capacity of each SSD of a new array, as 512MiB or 4G")
            ->check(size_text())
            ->capture_default_str();
    start
        ->add_option("--lease-ms", o->lease_ms,
                     "milliseconds that a write lease of a volume lasts unless it is renewed")
        ->check(CLI::Range(100, 86'400'000))
        ->capture_default_str();
    start
        ->add_option("--spare-after", o->spare_after_s,
                     "seconds after which a slot that is out is given to a spare, if there is one and no "
                     "volume is open for "
                     "writing; 0: only 'gnstor ssd replace' does that")
        ->check(CLI::Range(0, 31'536'000))
        ->capture_default_str();
    add_scrub_options(*start, o->scrub);
    add_ssd_options(*start, o->ssd);
    start
        ->add_option(
            "--nodes", o->nodes,
            "number of node processes that serve a new array's SSDs on the udp wire, each with --ssds SSDs")
        ->check(CLI::Range(1, 64));
    start
        ->add_option("--node-addresses", o->node_addresses,
                     "ADDR[:PORT] of each node, separated by commas; default: free loopback addresses")
        ->delimiter(',');
    CLI::Option* const listen = start->add_option("--listen", o->listen,
                                                  "HOST:PORT on which gnstord serves TCP too, with TLS "
                                                  "unless it is a loopback address; requests over TCP "
                                                  "need its token");
    add_tls_options(*start, o->tls, listen, "--");
    start->add_option("--wait", o->wait_s, "seconds to wait until the array is ready")
        ->check(CLI::Range(1, 3600))
        ->capture_default_str();
    start->add_flag("--foreground", o->foreground, "run gnstord in the foreground and log to the terminal");
    start->add_flag("--quarantine-store", o->quarantine,
                    "rename a damaged record store and rebuild its records from the SSDs");
    start->callback([&context, o, start, ssds, capacity] {
        o->ssds_given = ssds->count() > 0;
        o->capacity_given = capacity->count() > 0;
        o->service_units_given = start->count("--service-units") > 0;
        for (const char* option : kOfTheDaemon)
            if (start->count(option) > 0) o->of_the_daemon.emplace_back(option);
        context.action = [&context, o] { return up(context, *o); };
    });

    add_down_command(app, context);

    app.add_subcommand("status", "the array at a glance")->callback([&context] {
        context.action = [&context] { return status(context); };
    });

    CLI::App* ssd = app.add_subcommand("ssd", "SSDs of the array");
    ssd->require_subcommand(1);
    ssd->add_subcommand("list", "list all SSDs")->callback([&context] {
        context.action = [&context] { return list_ssds(context); };
    });
    add_replace_command(*ssd, context);
}

}  // namespace gnstor::cli
