// demo.hpp: one life of the demo's process: store the archive, look through it, hold the answers against
// others'. Host, one thread.
#pragma once

#include <gnstor/base/result.hpp>

#include "archive.hpp"

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>

namespace gnstor::demo {

/// An array that other processes serve.
struct Remote {
    bool wanted = false;
    std::string
        array;  ///< of its gnstord: unix:PATH, https://HOST:PORT or http://HOST:PORT; empty: one is started
    std::string token_file;               ///< of TCP
    std::string tls_ca, tls_fingerprint;  ///< of https, as RemoteArrayOptions
    std::string address;                  ///< of this process on the udp wire; empty: chosen
    std::uint32_t nodes = 2;              ///< of one that is started; 0: gnstord has the SSDs
    pid_t gnstord = 0;                    ///< of one that was started
    [[nodiscard]] bool own() const { return gnstord != 0; }
};

/// What the command line said.
struct Options {
    std::string lanes = "cpu";
    std::string input = "/usr/lib";
    std::string pattern = "GLIBC_2.";
    std::string max_bytes = "256MiB";
    std::uint32_t ssds = 4;
    std::uint32_t engine_threads = 0;
    std::uint64_t seed = 1;
    bool corrupt = false;
    bool strict = false;
    bool kill = false;
    Remote remote;
};

inline constexpr std::uint32_t kReplicas = 2;

/// What an earlier life of the process left behind, and who wants to know how far this one comes (kill.hpp).
struct Life {
    std::uint32_t number = 1;
    std::uint32_t stored_blocks = 0;  ///< acknowledged to earlier lives: they must be there
    int progress = -1;                ///< pipe for Progress messages; -1: nobody listens
    bool doomed = false;              ///< who listens kills it: it waits for that once its kernel has looked
    std::string kills;                ///< of earlier lives, for the closing words; empty: none
};

/// Written to Life::progress, whole.
struct Progress {
    enum Kind : std::uint32_t { kStored = 1, kLooking = 2 };
    std::uint32_t kind;
    std::uint32_t blocks;  ///< kStored: acknowledged so far, from the first on
};

void heading(int number, const std::string& text);

/// The steps after the input, in order, each printing what it did. `work` is a folder for stores. False: an
/// answer was wrong.
Result<bool> run_demo(const Options& options, const std::filesystem::path& work, const Archive& archive,
                      const Life& life);

}  // namespace gnstor::demo
