// main.cpp: gnstor_bench, the program behind ./run bench: options and exit codes (0 good, 1 failed or wrong
// data, 2 wrong usage).
#include <gnstor/base/units.hpp>

#include "deengine.hpp"
#include "load_options.hpp"
#include "model.hpp"
#include "paper.hpp"
#include "path.hpp"
#include "pool.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string_view>

namespace gnstor::bench {
namespace {

struct Words {
    std::string lanes = "cpu";
    std::vector<std::string> operations{"read", "write"};
    std::string working_set = "256MiB";
    std::string write_budget;
    std::string verify = "all";
};

void add_path_options(CLI::App& path, PathOptions& o, Words& words) {
    path.add_option("--lanes", words.lanes, "what runs the kernels: cpu or gpu")->capture_default_str();
    path.add_option("--sizes", o.sizes,
                    "bytes of an operation, several by commas: powers of two, 512 .. 65536")
        ->delimiter(',')
        ->capture_default_str();
    path.add_option("--ops", words.operations, "read, write or both, by commas")
        ->delimiter(',')
        ->check(CLI::IsMember({"read", "write"}))
        ->capture_default_str();
    path.add_option("--repeats", o.repeats, "of every case")->capture_default_str();
    path.add_option("--seconds", o.seconds, "of one repeat")->capture_default_str();
    path.add_option("--ssds", o.ssds, "how many SSDs")->capture_default_str();
    path.add_option("--replicas", o.replicas, "of every block")->capture_default_str();
    path.add_option("--channels", o.channels, "that warps share; 0: chosen for the lanes")
        ->capture_default_str();
    path.add_option("--warps", o.warps, "0: chosen for the lanes; on CPU lanes a thread each")
        ->capture_default_str();
    path.add_option("--depth", o.depth, "operations in flight a lane; 0: chosen")->capture_default_str();
    path.add_option("--engine-threads", o.engine_threads, "threads for NIC and SSDs; 0: half of the cores")
        ->capture_default_str();
    path.add_option("--working-set", words.working_set, "what is read and written, such as 256MiB")
        ->capture_default_str();
    path.add_option("--write-budget", words.write_budget,
                    "what the writes of one repeat may program on all SSDs (default: 2GiB, GPU lanes 16GiB)");
    path.add_option("--seed", o.seed, "of contents and order")->capture_default_str();
    path.add_option("--verify", words.verify,
                    "which reads are compared word by word: all, sample (one in 16) or none")
        ->check(CLI::IsMember({"all", "sample", "none"}))
        ->capture_default_str();
    path.add_flag("!--no-reference", o.reference, "leave the plain copies out");
    path.add_option("--store", o.store,
                    "folder for the drives' stores while it runs (default: drives of memory)")
        ->check(CLI::ExistingDirectory);
    path.add_option("--durability", o.durability, "of stores in files: process or power")
        ->transform(CLI::CheckedTransformer(std::map<std::string, SsdDurability>{
            {"process", SsdDurability::kProcess}, {"power", SsdDurability::kPower}}))
        ->option_text("process|power");
    path.add_flag("--direct", o.direct_io, "stores without the page cache (O_DIRECT)");
    path.add_option("--profile", o.profile,
                    "hardware whose time SSDs and network take: none, a name or a file (share/profiles)")
        ->capture_default_str();
    path.add_option("--json", o.json, "keep the raw result in this file (docs/runs/README.md)");
}

Result<void> read_words(const Words& words, PathOptions& o) {
    GN_ASSIGN(o.lanes, simt::parse_lanes(words.lanes));
    o.read = std::find(words.operations.begin(), words.operations.end(), "read") != words.operations.end();
    o.write = std::find(words.operations.begin(), words.operations.end(), "write") != words.operations.end();
    GN_ASSIGN(o.working_set, parse_bytes(words.working_set));
    if (!words.write_budget.empty()) {
        GN_ASSIGN(o.write_budget, parse_bytes(words.write_budget));
        if (o.write_budget < (1u << 20))
            return error(Errc::kInvalidArgument, "--write-budget takes at least 1MiB, not {}",
                         words.write_budget);
    }
    o.verify = words.verify == "none"     ? Verify::kNone
               : words.verify == "sample" ? Verify::kSample
                                          : Verify::kAll;
    return {};
}

struct DeEngineWords {
    std::string data = "1GiB";
    std::string lanes = "cpu";
};

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
}

/// The command as the raw result keeps it: without folders of this machine.
std::vector<std::string> as_kept(int argc, char** argv) {
    std::vector<std::string> words{"gnstor_bench"};
    for (int i = 1; i < argc; ++i) {
        const bool names_file = i > 1 && std::string_view(argv[i - 1]) == "--json";
        const bool names_folder = i > 1 && std::string_view(argv[i - 1]) == "--store";
        words.push_back(names_folder ? "FOLDER"
                        : names_file ? std::filesystem::path(argv[i]).filename().string()
                                     : argv[i]);
    }
    return words;
}

Result<bool> start(const DeEngineWords& words, DeEngineOptions& options) {
    GN_ASSIGN(options.data_bytes, parse_bytes(words.data));
    return run_deengine(options);
}

Result<bool> start(const ModelWords& words, ModelOptions& options) {
    GN_TRY(read_model_words(words, options));
    return run_model(options);
}

Result<bool> start(const Words& words, PathOptions& options) {
    GN_TRY(read_words(words, options));
    return run_path(options);
}

Result<bool> start(const PoolBenchWords& words, PoolBenchOptions& options) {
    GN_TRY(read_pool_words(words, options));
    return run_pool(options);
}

Result<bool> start(const LoadWords& words, PaperOptions& options) {
    GN_TRY(read_load_words(words, options.settings));
    return run_paper(options);
}

void add_paper_options(CLI::App& app, PaperOptions& o, LoadWords& words) {
    app.add_option("--figure", o.figure, "9: patterns, 10: latency, 11: clients, 12: SSDs, 13: ablation")
        ->required();
    app.add_option("--path", o.paths, "who initiates, by commas")->delimiter(',')->capture_default_str();
    app.add_option("--json", o.json,
                   "keeps the figure while it is measured; the same command goes on with it")
        ->required();
    app.add_option("--limit", o.limit_seconds, "seconds after which no case is begun")->capture_default_str();
    add_load_settings(app, o.settings, words);
}

Result<bool> start(const LoadWords& words, LoadOptions& options) {
    GN_TRY(read_load_words(words, options.settings));
    return run_load(options);
}

}  // namespace
}  // namespace gnstor::bench

int main(int argc, char** argv) {
    using gnstor::Errc;
    gnstor::bench::PathOptions options;
    gnstor::bench::Words words;
    CLI::App app{"Measurements of GNStor.", "gnstor_bench"};
    app.require_subcommand(1);
    CLI::App* const path = app.add_subcommand(
        "path", "random reads and writes by lanes, through a whole array: IOPS, GB/s, latency, CPU time");
    gnstor::bench::add_path_options(*path, options, words);
    gnstor::bench::DeEngineOptions deengine_options;
    gnstor::bench::DeEngineWords deengine_words;
    CLI::App* const deengine = app.add_subcommand(
        "deengine", "what a drive's firmware costs a command: map, check, copy with CRC, whole path");
    gnstor::bench::add_deengine_options(*deengine, deengine_options, deengine_words);
    gnstor::bench::LoadOptions load_options;
    gnstor::bench::LoadWords load_words;
    CLI::App* const load = app.add_subcommand(
        "load",
        "ways to initiate I/O beside each other, over the same NIC and SSDs: gnor and honest baselines");
    gnstor::bench::add_load_options(*load, load_options, load_words);
    gnstor::bench::PoolBenchOptions pool_options;
    gnstor::bench::PoolBenchWords pool_words;
    CLI::App* const pool = app.add_subcommand(
        "pool", "a channel's pool of buffers: what allocating costs, and how far it falls to pieces");
    gnstor::bench::add_pool_options(*pool, pool_options, pool_words);
    gnstor::bench::PaperOptions paper_options;
    gnstor::bench::LoadWords paper_words;
    CLI::App* const paper = app.add_subcommand(
        "paper",
        "figures 9 to 13 of the paper that this system comes from, measured here; goes on where it was");
    gnstor::bench::add_paper_options(*paper, paper_options, paper_words);
    gnstor::bench::ModelOptions model_options;
    gnstor::bench::ModelWords model_words;
    CLI::App* const model = app.add_subcommand(
        "model", "modelled hardware beside its profile: IOPS, bandwidth and latency over load");
    gnstor::bench::add_model_options(*model, model_options, model_words);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& wrong) {
        return app.exit(wrong) == 0 ? 0 : 2;
    }
    model_options.command = gnstor::bench::as_kept(argc, argv);
    options.command = deengine_options.command = load_options.command = pool_options.command =
        paper_options.command = gnstor::bench::as_kept(argc, argv);
    auto agreed = model->parsed()      ? gnstor::bench::start(model_words, model_options)
                  : paper->parsed()    ? gnstor::bench::start(paper_words, paper_options)
                  : load->parsed()     ? gnstor::bench::start(load_words, load_options)
                  : pool->parsed()     ? gnstor::bench::start(pool_words, pool_options)
                  : deengine->parsed() ? gnstor::bench::start(deengine_words, deengine_options)
                                       : gnstor::bench::start(words, options);
    if (!agreed.ok()) {
        std::fprintf(stderr, "bench: %s\n", agreed.error().message.c_str());
        return agreed.error().code == Errc::kInvalidArgument ? 2 : 1;
    }
    return *agreed ? 0 : 1;
}
