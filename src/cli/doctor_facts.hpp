// doctor_facts.hpp: reads the facts for `gnstor doctor` from this machine, or from sources that a test
// supplies. Changes nothing; every step is bounded in time. One thread.
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

/// The sources of the facts; a test may replace each.
struct DoctorSources {
    std::filesystem::path root = "/";  ///< folder that contains proc, sys and dev
    std::function<int(const std::string& address)> bind_roce_port;  ///< errno, 0: it could be bound
    std::function<int()> open_raw_socket;                           ///< errno, 0: it could be opened
    std::function<std::vector<LocalAddress>()> local_addresses;
    std::function<std::optional<std::string>(const std::vector<std::string>& command)> run;  ///< its output
    std::function<std::pair<std::optional<std::uint64_t>, bool>()> locked_memory;  ///< limit, CAP_IPC_LOCK
    std::function<std::string()> find_nvcc;
    /// Bytes free for this user; nullopt: `trouble` says why.
    std::function<std::optional<std::uint64_t>(const std::filesystem::path&, std::string& trouble)>
        free_bytes;
};

/// Sources that read this machine.
[[nodiscard]] DoctorSources machine();

/// All facts except versions and running processes of the array. `addresses`: of the udp wire; empty: any
/// (0.0.0.0).
[[nodiscard]] DoctorFacts read_facts(const DoctorSources& sources, const std::vector<std::string>& addresses,
                                     const std::filesystem::path& directory);

/// Standard output of a program that exits with 0 within the deadline; nullopt otherwise. The program is
/// searched for on PATH and in the sbin folders.
[[nodiscard]] std::optional<std::string> output_of(const std::vector<std::string>& command,
                                                   std::chrono::milliseconds deadline);

}  // namespace gnstor::cli
