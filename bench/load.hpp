// load.hpp: `bench load`: one or more ways to initiate I/O under a stated load. Host, one thread.
#pragma once

#include "embedded/profile.hpp"
#include "engine_options.hpp"
#include "initiators/initiator.hpp"
#include "initiators/served_array.hpp"
#include "result.hpp"

#include <optional>
#include <string>
#include <vector>

namespace gnstor::bench {

/// What one row of a table is about.
struct LoadCase {
    PathKind path = PathKind::kGnor;
    Pattern pattern = Pattern::kRandom;
    std::uint32_t write_percent = 0;
    std::uint32_t bytes = 4096;
    std::uint32_t clients = 1;
    std::uint32_t ssds = 4;
    std::uint32_t depth = 32;  ///< of a client
};
nlohmann::json parameters_of(const LoadCase& c);

/// What all rows share.
struct LoadSettings {
    simt::LanesKind lanes = simt::LanesKind::kCpu;
    std::uint32_t replicas = 2;
    std::uint32_t channels = 1;  ///< of each client, where lanes initiate
    std::uint32_t warps = 0;     ///< likewise; 0: as many as use the data of a CPU initiator's
    /// At most, as cores allow (load_threads.hpp).
    std::uint32_t threads = 0;         ///< strong-cpu; 0: the cores that engine threads leave
    std::uint32_t client_threads = 0;  ///< gd-deengine, gd, basic; 0: one a client
    std::uint32_t array_threads = 0;   ///< central engine; 0: 8
    EngineOptions engine;
    std::uint64_t working_set = 64u << 20;    ///< of all clients together
    std::uint64_t write_budget = 512u << 20;  ///< bytes that the writes of one repeat may program on all SSDs
    std::uint32_t repeats = 3;
    double seconds = 1.0;  ///< of each repeat
    double rate = 0;       ///< open loop: requests a second of all clients together; 0: as many as they can
    std::uint64_t seed = 1;
    std::string profile = "none";  ///< of the hardware that is modelled: a name, or a file
    /// Where it names an array of other processes: that one, as it is, with gnor alone.
    ServedArrayOptions served;
    Verify verify = Verify::kAll;
    bool fua = false;  ///< on every command of every path; else on none
    /// Arrays are kept from one repeat to the next, writes go on for the whole of a repeat, and drives
    /// collect garbage meanwhile. Else each repeat of writes has a new array and ends with its budget.
    bool steady = false;
};
nlohmann::json configuration_of(const LoadSettings& s);

/// Checks, and fills in what is 0.
Result<LoadSettings> complete(LoadSettings settings);
Result<void> check(const LoadCase& c, const LoadSettings& s);

/// Measures cases; what tests of those that keep results stand in for.
class CaseRunner {
  public:
    virtual ~CaseRunner() = default;
    /// All repeats. Wrong data is counted in wrong(), and said.
    virtual Result<Case> measure(const LoadCase& c) = 0;
    [[nodiscard]] virtual std::uint64_t wrong() const = 0;
};
/// None where something was wrong: how fast data goes astray is no result, and nobody keeps it.
Result<std::optional<Case>> measure_right(CaseRunner& runner, const LoadCase& c);

/// Keeps an array from one case to the next where it can.
class LoadRunner final : public CaseRunner {
  public:
    explicit LoadRunner(LoadSettings complete);
    ~LoadRunner() override;
    Result<Case> measure(const LoadCase& c) override;
    [[nodiscard]] std::uint64_t wrong() const override { return wrong_; }
    [[nodiscard]] std::uint64_t checked() const { return checked_; }
    /// Of the initiator last used, for people.
    [[nodiscard]] const std::string& described() const { return described_; }
    /// Of the array last used.
    [[nodiscard]] const std::string& wire() const { return wire_; }

  private:
    struct Rig;
    Result<void> prepare(const LoadCase& c);
    Result<Repeat> repeat(const LoadCase& c, std::uint32_t index);
    Result<void> compare(const LoadCase& c);
    void note_limits(const LoadCase& c, Repeat& repeat) const;
    [[nodiscard]] Load load_of(const LoadCase& c) const;
    [[nodiscard]] std::uint64_t volume_bytes(const LoadCase& c) const;
    [[nodiscard]] std::uint64_t pages_a_write(const LoadCase& c) const;
    Result<void> check_outcome(const LoadCase& c, const Outcome& out, std::uint64_t executed);

    const LoadSettings settings_;
    embedded::Profile profile_;
    std::unique_ptr<Rig> rig_;
    std::string described_, wire_;
    std::uint64_t wrong_ = 0, checked_ = 0;
};

struct LoadOptions {
    std::vector<std::string> paths;  ///< none: gnor, and strong-cpu where the array is the benchmark's own
    std::vector<std::string> patterns{"rand"};
    std::vector<std::uint32_t> write_percents{0, 100};
    std::vector<std::uint32_t> bytes{4096};
    std::vector<std::uint32_t> clients{1};
    std::vector<std::uint32_t> ssds{4};
    std::vector<std::uint32_t> depths{32};
    LoadSettings settings;
    std::string json;    ///< path of the raw result; empty: none
    std::string output;  ///< "table" or "json" on standard output
    std::vector<std::string> command;
};
/// Measures every combination and prints. False: something was wrong.
Result<bool> run_load(const LoadOptions& options);

/// A table for people.
std::string load_table(const std::vector<Case>& cases);
/// What threads and warps did with their time, by path and stage; empty where nobody measured it.
std::string work_table(const std::vector<Case>& cases);
/// The rows' results in the schema of docs/runs/README.md.
nlohmann::json load_json(const std::string& benchmark, const std::vector<std::string>& command,
                         const LoadSettings& s, const std::vector<Case>& cases);

}  // namespace gnstor::bench
