// main.cpp: gnstor_bench, the program behind ./run bench: options and exit codes (0 good, 1 failed or wrong
// data, 2 wrong usage, 3 modelled hardware is not what its profile says).
#include "deengine_options.hpp"
#include "load_options.hpp"
#include "model.hpp"
#include "paper.hpp"
#include "path_options.hpp"
#include "pool.hpp"
#include "wire.hpp"
#include "wire_node.hpp"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <filesystem>
#include <string_view>

namespace gnstor::bench {
namespace {

constexpr char kExamples[] =
    "Each has a --help of its own. Examples:\n"
    "  gnstor bench --path gnor,strong-cpu --bytes 4096,65536 --write-percent 0,100    (load is the "
    "default)\n"
    "  gnstor bench path --sizes 512,4096 --ops read\n"
    "  gnstor bench model --profiles samsung-pm1743 --sizes 4096 --ops read";

std::string value_as_kept(const std::string& option, const std::string& value) {
    if (option == "--store" || option == "--token-file" || option == "--tls-ca") return "FOLDER";
    if (option == "--array" && value.starts_with("unix:")) return "unix:SOCKET";
    return option == "--json" ? std::filesystem::path(value).filename().string() : value;
}

/// The command as the raw result keeps it: without folders of this machine.
std::vector<std::string> as_kept(int argc, char** argv) {
    std::vector<std::string> words{"gnstor_bench"};
    std::string option;  // that the next word belongs to
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        const std::size_t equals = word.starts_with("--") ? word.find('=') : std::string::npos;
        if (equals != std::string::npos)
            words.push_back(word.substr(0, equals + 1) +
                            value_as_kept(word.substr(0, equals), word.substr(equals + 1)));
        else
            words.push_back(value_as_kept(option, word));
        option = word;
    }
    return words;
}

Result<bool> start(const DeEngineWords& words, DeEngineOptions& options) {
    GN_TRY(read_deengine_words(words, options));
    return run_deengine(options);
}

Result<int> exit_code_of(const Result<bool>& right) {
    if (!right.ok()) return right.error();
    return *right ? 0 : 1;
}
Result<int> start(const ModelWords& words, ModelOptions& options) {
    GN_TRY(read_model_words(words, options));
    GN_ASSIGN(const ModelEnd end, run_model(options));
    return !end.data_was_right ? 1 : end.outside != 0 ? 3 : 0;
}

Result<bool> start(const PathWords& words, PathOptions& options) {
    GN_TRY(read_path_words(words, options));
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
    app.add_option("--path", o.paths, "what initiates the requests, separated by commas")
        ->delimiter(',')
        ->capture_default_str();
    app.add_option("--json", o.json,
                   "file that keeps the cases measured so far; the same command with the same file continues "
                   "the figure")
        ->required();
    app.add_option("--limit", o.limit_seconds, "time in seconds after which no further case is started")
        ->capture_default_str();
    add_load_settings(app, o.settings, words);
    app.footer(
        "Examples:\n"
        "  gnstor bench paper --figure 13 --json figure-13.json    (the same command continues an "
        "interrupted run)\n"
        "  gnstor bench paper --figure 12 --path gnor --json figure-12.json");
}

Result<bool> start(const LoadWords& words, LoadOptions& options) {
    GN_TRY(read_load_words(words, options.settings));
    return run_load(options);
}

}  // namespace
}  // namespace gnstor::bench

int main(int argc, char** argv) {
    using gnstor::Errc;
    if (argc == 2 && std::string_view(argv[1]) == gnstor::bench::wire_bench::kNodeWord)
        return gnstor::bench::wire_bench::run_node();
    gnstor::bench::PathOptions options;
    gnstor::bench::PathWords words;
    CLI::App app{"Measurements of GNStor.", "gnstor_bench"};
    app.require_subcommand(1);
    app.footer(gnstor::bench::kExamples);
    CLI::App* const path = app.add_subcommand(
        "path", "random reads and writes by lanes, through a whole array: IOPS, GB/s, latency, CPU time");
    gnstor::bench::add_path_options(*path, options, words);
    gnstor::bench::DeEngineOptions deengine_options;
    gnstor::bench::DeEngineWords deengine_words;
    CLI::App* const deengine = app.add_subcommand("deengine",
                                                  "time that the drive firmware needs per command: block "
                                                  "map, permission check, copy with CRC, whole path");
    gnstor::bench::add_deengine_options(*deengine, deengine_options, deengine_words);
    gnstor::bench::LoadOptions load_options;
    gnstor::bench::LoadWords load_words;
    CLI::App* const load = app.add_subcommand(
        "load", "compare ways to initiate I/O over the same NICs and SSDs: gnor and baselines");
    gnstor::bench::add_load_options(*load, load_options, load_words);
    gnstor::bench::PoolBenchOptions pool_options;
    gnstor::bench::PoolBenchWords pool_words;
    CLI::App* const pool =
        app.add_subcommand("pool", "the buffer pool of a channel: cost of an allocation, and fragmentation");
    gnstor::bench::add_pool_options(*pool, pool_options, pool_words);
    gnstor::bench::PaperOptions paper_options;
    gnstor::bench::LoadWords paper_words;
    CLI::App* const paper = app.add_subcommand(
        "paper",
        "measure figures 9 to 13 of the GNStor paper on this machine; an interrupted run is continued");
    gnstor::bench::add_paper_options(*paper, paper_options, paper_words);
    gnstor::bench::ModelOptions model_options;
    gnstor::bench::ModelWords model_words;
    CLI::App* const model = app.add_subcommand(
        "model", "compare modelled hardware with its profile: IOPS, bandwidth and latency over load");
    gnstor::bench::add_model_options(*model, model_options, model_words);
    gnstor::bench::WireOptions wire_options;
    std::string wire_lanes;
    CLI::App* const wire = app.add_subcommand(
        "wire", "compare moving bytes between two NICs, per wire, with memcpy and plain sockets");
    gnstor::bench::add_wire_options(*wire, wire_options, wire_lanes);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& wrong) {
        return app.exit(wrong) == 0 ? 0 : 2;
    }
    model_options.command = gnstor::bench::as_kept(argc, argv);
    options.command = deengine_options.command = load_options.command = pool_options.command =
        paper_options.command = wire_options.command = gnstor::bench::as_kept(argc, argv);
    using gnstor::bench::exit_code_of, gnstor::bench::start;
    const auto ended = model->parsed()      ? start(model_words, model_options)
                       : wire->parsed()     ? exit_code_of(gnstor::bench::run_wire(wire_options))
                       : paper->parsed()    ? exit_code_of(start(paper_words, paper_options))
                       : load->parsed()     ? exit_code_of(start(load_words, load_options))
                       : pool->parsed()     ? exit_code_of(start(pool_words, pool_options))
                       : deengine->parsed() ? exit_code_of(start(deengine_words, deengine_options))
                                            : exit_code_of(start(words, options));
    if (!ended.ok()) {
        std::fprintf(stderr, "bench: %s\n", ended.error().message.c_str());
        return ended.error().code == Errc::kInvalidArgument ? 2 : 1;
    }
    return *ended;
}
