// deengine_options.cpp: `bench deengine` on the command line.
#include "deengine_options.hpp"

#include <gnstor/base/units.hpp>

namespace gnstor::bench {

void add_deengine_options(CLI::App& app, DeEngineOptions& o, DeEngineWords& words) {
    app.add_option("--parts", o.parts,
                   "the parts to measure, separated by commas: map, check, copy, path, collect, recover")
        ->delimiter(',')
        ->check(CLI::IsMember({"map", "check", "copy", "path", "collect", "recover"}))
        ->capture_default_str();
    app.add_option("--repeats", o.repeats, "how often each case is measured")->capture_default_str();
    app.add_option("--map-slots", o.map_slots, "slots of the block map that is measured by itself")
        ->capture_default_str();
    app.add_option(
           "--path-blocks", o.path_blocks,
           "blocks that the engine maps in the case whose flash neither copies data nor computes checksums")
        ->capture_default_str();
    app.add_option("--wear-blocks", o.wear_blocks, "capacity in blocks of the full drive that is overwritten")
        ->capture_default_str();
    app.add_option("--recover-blocks", o.recover_blocks,
                   "capacity in blocks of the full drive that is opened again")
        ->capture_default_str();
    app.add_option(
           "--data", words.data,
           "amount of data that the engine on memory flash holds, and size of the source of the copies")
        ->capture_default_str();
    app.add_option("--cores", o.cores,
                   "largest number of engines that run at the same time, each on its own thread")
        ->capture_default_str();
    app.add_option("--lanes", words.lanes,
                   "ignored: this benchmark runs no lanes; accepted because ./run passes the option to every "
                   "benchmark")
        ->check(CLI::IsMember({"cpu", "gpu"}));
    app.add_option("--seed", o.seed, "seed of the random keys and of their order")->capture_default_str();
    app.add_option("--json", o.json, "keep the raw result in this file (docs/runs/README.md)");
    app.footer(
        "Examples:\n"
        "  gnstor bench deengine --parts map,check --cores 1\n"
        "  gnstor bench deengine --parts path,collect --data 256MiB --json deengine.json");
}

Result<void> read_deengine_words(const DeEngineWords& words, DeEngineOptions& options) {
    GN_ASSIGN(options.data_bytes, parse_bytes(words.data));
    return {};
}

}  // namespace gnstor::bench
