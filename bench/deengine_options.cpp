// deengine_options.cpp: `bench deengine` on the command line.
#include "deengine_options.hpp"

#include <gnstor/base/units.hpp>

namespace gnstor::bench {

void add_deengine_options(CLI::App& app, DeEngineOptions& o, DeEngineWords& words) {
    app.add_option("--parts", o.parts, "map, check, copy, path, collect, recover, by commas")
        ->delimiter(',')
        ->check(CLI::IsMember({"map", "check", "copy", "path", "collect", "recover"}))
        ->capture_default_str();
    app.add_option("--repeats", o.repeats, "of every case")->capture_default_str();
    app.add_option("--map-slots", o.map_slots, "of the block map alone")->capture_default_str();
    app.add_option("--path-blocks", o.path_blocks,
                   "mapped by an engine on flash that neither copies nor sums")
        ->capture_default_str();
    app.add_option("--wear-blocks", o.wear_blocks, "of a full drive that is overwritten")
        ->capture_default_str();
    app.add_option("--recover-blocks", o.recover_blocks, "of a full drive that is opened again")
        ->capture_default_str();
    app.add_option("--data", words.data, "held by an engine on memory, and copied from")
        ->capture_default_str();
    app.add_option("--cores", o.cores, "most engines at once, each on a thread of its own")
        ->capture_default_str();
    app.add_option("--lanes", words.lanes, "as ./run gives them to every benchmark; this one runs no lanes")
        ->check(CLI::IsMember({"cpu", "gpu"}));
    app.add_option("--seed", o.seed, "of keys and order")->capture_default_str();
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
