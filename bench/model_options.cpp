// model_options.cpp: `bench model` on the command line.
#include "model.hpp"

#include <gnstor/base/units.hpp>

#include <algorithm>

namespace gnstor::bench {

void add_model_options(CLI::App& app, ModelOptions& o, ModelWords& words) {
    app.add_option("--lanes", words.lanes, "what runs the kernels: cpu or gpu")->capture_default_str();
    app.add_option("--profiles", o.profiles, "names or files of profiles, separated by commas")
        ->delimiter(',')
        ->capture_default_str();
    app.add_option("--sizes", o.sizes, "bytes per operation; several separated by commas")
        ->delimiter(',')
        ->capture_default_str();
    app.add_option("--ops", words.operations, "read, write or both, separated by commas")
        ->delimiter(',')
        ->check(CLI::IsMember({"read", "write"}))
        ->capture_default_str();
    app.add_option("--depths", o.depths,
                   "closed loop: operations in flight per lane; several separated by commas")
        ->delimiter(',')
        ->capture_default_str();
    app.add_option("--loads", o.loads,
                   "open loop: offered load as a share of the profile's limit; several separated by commas")
        ->delimiter(',')
        ->capture_default_str();
    app.add_option("--repeats", o.repeats, "how often each case is measured")->capture_default_str();
    app.add_option("--seconds", o.seconds, "duration of one repeat")->capture_default_str();
    app.add_option("--ssds", o.ssds, "how many SSDs")->capture_default_str();
    app.add_option("--replicas", o.replicas, "number of replicas of every block")->capture_default_str();
    app.add_option("--channels", o.channels, "channels that the warps share; 0: chosen to fit the lanes")
        ->capture_default_str();
    app.add_option("--warps", o.warps,
                   "number of warps; 0: chosen to fit the lanes; on CPU lanes each warp is a thread")
        ->capture_default_str();
    add_engine_options(app, o.engine);
    app.add_option("--working-set", words.working_set, "bytes that are read and written, such as 64MiB")
        ->capture_default_str();
    app.add_option("--write-budget", words.write_budget,
                   "most bytes that the writes of one repeat program on all SSDs together")
        ->capture_default_str();
    app.add_option("--seed", o.seed, "seed of the contents and of the order of operations")
        ->capture_default_str();
    app.add_option("--json", o.json, "keep the raw result in this file (docs/runs/README.md)");
    app.footer(
        "Examples:\n"
        "  gnstor bench model --profiles gnstor-paper --ssds 4 --replicas 2 --sizes 4096,65536\n"
        "  gnstor bench model --profiles samsung-980-pro --ops read --loads 0.5 --json model.json\n"
        "Ends with status 3 if a case differs from its profile by more than 3 % and the host is not the "
        "cause.");
}

Result<void> read_model_words(const ModelWords& words, ModelOptions& o) {
    GN_ASSIGN(o.lanes, simt::parse_lanes(words.lanes));
    o.read = std::ranges::find(words.operations, "read") != words.operations.end();
    o.write = std::ranges::find(words.operations, "write") != words.operations.end();
    GN_ASSIGN(o.working_set, parse_bytes(words.working_set));
    GN_ASSIGN(o.write_budget, parse_bytes(words.write_budget));
    return {};
}

}  // namespace gnstor::bench
