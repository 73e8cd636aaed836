// doctor_facts.hpp: reads what `gnstor doctor` judges from this machine, or from whatever a test puts in its
// place. Changes nothing; every step is bounded. One thread.
#pragma once

#include "cli/doctor.hpp"

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace gnstor::cli {

/// An address of an interface of this machine.
struct LocalAddress {
    std::string interface, address;
    bool loopback = false;
};

/// Where facts come from. Each may be replaced.
struct DoctorSources {
    std::filesystem::path root = "/";                               ///< of proc, sys and dev
    std::function<int(const std::string& address)> bind_roce_port;  ///< errno, 0: it could be bound
    std::function<int()> open_raw_socket;                           ///< errno, 0: it could be opened
    std::function<std::vector<LocalAddress>()> local_addresses;
    std::function<std::optional<std::string>(const std::vector<std::string>& command)> run;  ///< its output
    std::function<std::pair<std::optional<std::uint64_t>, bool>()> locked_memory;  ///< limit, CAP_IPC_LOCK
    std::function<std::string()> find_nvcc;
    /// Bytes free to this user; else why that is not known.
    std::function<std::optional<std::uint64_t>(const std::filesystem::path&, std::string& trouble)>
        free_bytes;
};

/// This machine.
[[nodiscard]] DoctorSources machine();

/// Everything but versions of program and daemon. `addresses`: for the udp wire; empty: any (0.0.0.0).
[[nodiscard]] DoctorFacts read_facts(const DoctorSources& sources, const std::vector<std::string>& addresses,
                                     const std::filesystem::path& directory);

/// Standard output of a program that ends with 0 within the deadline; nothing otherwise. Looked for on PATH
/// and where administrators' programs lie.
[[nodiscard]] std::optional<std::string> output_of(const std::vector<std::string>& command,
                                                   std::chrono::milliseconds deadline);

}  // namespace gnstor::cli
