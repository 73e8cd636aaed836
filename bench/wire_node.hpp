// wire_node.hpp: the node that `bench wire` measures the shm wire against: a process of its own, this very
// program started again with one hidden word, ordered about over a socket pair.
//
// It serves one client over shm and holds the end that the client's queue pair is connected to. It ends when
// its orders end: when the client's process lets go of the socket pair, or dies. Host.
#pragma once

#include "wire_end.hpp"

#include <gnstor/base/result.hpp>

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace gnstor::bench::wire_bench {

/// The hidden word: `gnstor_bench wire-node`, with orders on its standard input.
inline constexpr char kNodeWord[] = "wire-node";
/// Address of its NIC on its loop wire, which clients connect to.
inline constexpr char kNodeAddress[] = "node";
/// What that process does; its exit code.
int run_node();

/// The process, as its client sees it.
class NodeProcess {
  public:
    /// It listens for the one connection when this returns.
    static Result<std::unique_ptr<NodeProcess>> start(EndShape shape);
    /// Waits for its end, a bounded time; then ends it.
    ~NodeProcess();
    NodeProcess(const NodeProcess&) = delete;
    NodeProcess& operator=(const NodeProcess&) = delete;

    [[nodiscard]] const std::filesystem::path& socket_path() const { return path_; }
    [[nodiscard]] std::uint64_t memory_address() const { return memory_address_; }
    [[nodiscard]] std::uint32_t rkey() const { return rkey_; }

    Result<void> fill(std::uint64_t seed);
    Result<std::uint64_t> count_good(std::uint64_t seed, std::uint32_t place_bytes);
    /// False: it ended before its time.
    [[nodiscard]] bool alive() const;
    /// Of all its threads.
    Result<double> cpu_seconds();

  private:
    NodeProcess(int orders, pid_t pid, std::filesystem::path path)
        : orders_(orders), pid_(pid), path_(std::move(path)) {}

    const int orders_;
    const pid_t pid_;
    const std::filesystem::path path_;
    std::uint64_t memory_address_ = 0;
    std::uint32_t rkey_ = 0;
};

}  // namespace gnstor::bench::wire_bench
