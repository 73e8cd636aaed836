// load_options.cpp: `bench load` on the command line.
#include "load_options.hpp"

#include <gnstor/base/units.hpp>

#include "served_options.hpp"

namespace gnstor::bench {

void add_load_settings(CLI::App& app, LoadSettings& s, LoadWords& words) {
    app.add_option("--lanes", words.lanes, "what runs the consumer of the data: cpu or gpu")
        ->capture_default_str();
    app.add_option("--replicas", s.replicas, "number of replicas of every block")->capture_default_str();
    app.add_option("--channels", s.channels, "channels per client, on paths where lanes initiate")
        ->capture_default_str();
    app.add_option("--warps", s.warps,
                   "warps per client, on paths where lanes initiate; they share the client's --depth; 0: 8 "
                   "on a GPU, 1 on CPU lanes")
        ->capture_default_str();
    app.add_option("--threads", s.threads,
                   "most threads of path strong-cpu for all clients together; 0: the cores that the engine "
                   "threads leave free")
        ->capture_default_str();
    app.add_option("--client-threads", s.client_threads,
                   "most client threads of paths gd-deengine, gd and basic, all clients together; 0: one per "
                   "client if there are enough cores")
        ->capture_default_str();
    app.add_option("--array-threads", s.array_threads,
                   "most threads of the central array engine; together with engine and client threads never "
                   "more than the cores; 0: 8")
        ->capture_default_str();
    add_engine_options(app, s.engine);
    app.add_option("--working-set", words.working_set,
                   "bytes that all clients together read and write, such as 1GiB")
        ->capture_default_str();
    app.add_option("--write-budget", words.write_budget,
                   "most bytes that the writes of one repeat program on all SSDs together")
        ->capture_default_str();
    app.add_option("--repeats", s.repeats, "how often each case is measured")->capture_default_str();
    app.add_option("--seconds", s.seconds, "duration of one repeat")->capture_default_str();
    app.add_option("--rate", s.rate,
                   "open loop: requests per second that all clients together mean to send; 0: closed loop, "
                   "as many as possible")
        ->capture_default_str();
    app.add_option("--profile", s.profile, kProfileHelp)->capture_default_str();
    app.add_flag("--steady", s.steady,
                 "keep the array from one repeat to the next: writes last for all of --seconds, and the "
                 "drives collect garbage")
        ->capture_default_str();
    app.add_flag("--fua", s.fua,
                 "set Force Unit Access (FUA) on every command of every path, so that writes are answered "
                 "from stable media")
        ->capture_default_str();
    app.add_option("--seed", s.seed, "seed of the contents and of the order of requests")
        ->capture_default_str();
    app.add_option(
           "--verify", words.verify,
           "which reads are compared word by word with what was written: all, sample (one in 16) or none")
        ->check(CLI::IsMember({"all", "sample", "none"}))
        ->capture_default_str();
}

void add_load_options(CLI::App& app, LoadOptions& o, LoadWords& words) {
    app.add_option("--path", o.paths,
                   "what initiates the requests, separated by commas: gnor, strong-cpu, gd-deengine, gd, "
                   "basic, ported-locks, coordinating")
        ->delimiter(',')
        ->default_str("[gnor,strong-cpu]");
    app.add_option("--pattern", o.patterns, "rand, seq or both")
        ->delimiter(',')
        ->check(CLI::IsMember({"rand", "seq"}))
        ->capture_default_str();
    app.add_option("--write-percent", o.write_percents,
                   "share of writes; 0: reads only, 100: writes only; several separated by commas")
        ->delimiter(',')
        ->capture_default_str();
    app.add_option("--bytes", o.bytes,
                   "size of a request, a power of two from 512; several separated by commas")
        ->delimiter(',')
        ->capture_default_str();
    app.add_option("--clients", o.clients,
                   "number of clients, each with its own volume; several separated by commas")
        ->delimiter(',')
        ->capture_default_str();
    app.add_option("--ssds", o.ssds, "number of SSDs of the array; several separated by commas")
        ->delimiter(',')
        ->capture_default_str();
    app.add_option("--depth", o.depths, "requests in flight per client; several separated by commas")
        ->delimiter(',')
        ->capture_default_str();
    add_load_settings(app, o.settings, words);
    add_served_options(app, o.settings.served, "only path gnor can be measured there",
                       {"--ssds", "--engine-threads", "--nic-threads", "--service-units", "--profile",
                        "--array-threads", "--threads", "--client-threads", "--write-budget", "--steady"});
    app.add_option("--json", o.json, "keep the raw result in this file (docs/runs/README.md)");
    app.add_option("--output", o.output, "format of the result on standard output: table or json")
        ->check(CLI::IsMember({"table", "json"}));
    app.footer(
        "Examples:\n"
        "  gnstor bench load --path gnor,strong-cpu,gd-deengine,gd,basic --bytes 4096 --write-percent "
        "0,50,100\n"
        "  gnstor bench load --pattern seq,rand --bytes 512,65536 --write-percent 0 --output json\n"
        "  gnstor bench load --clients 1,2,4 --ssds 2,8 --warps 2 --channels 2 --depth 8 --json load.json\n"
        "  gnstor bench load --path gnor,strong-cpu,basic --rate 20000 --write-percent 0    (open loop)\n"
        "  gnstor bench load --array unix:.gnstor/gnstord.sock --path gnor    (after 'gnstor up --nodes 2')\n"
        "  gnstor bench load --profile samsung-pm1743 --replicas 1 --write-percent 30");
}

Result<void> read_load_words(const LoadWords& words, LoadSettings& s) {
    GN_ASSIGN(s.lanes, simt::parse_lanes(words.lanes));
    GN_ASSIGN(s.working_set, parse_bytes(words.working_set));
    GN_ASSIGN(s.write_budget, parse_bytes(words.write_budget));
    s.verify = words.verify == "none"     ? Verify::kNone
               : words.verify == "sample" ? Verify::kSample
                                          : Verify::kAll;
    return {};
}

}  // namespace gnstor::bench
