// fio.hpp: fio with io_uring on one file, as a yardstick beside the array: what this machine gives a program
// that reads and writes a file as fast as Linux lets it. Host, one thread.
//
// What is alike: bytes of an operation, operations in flight a thread, threads (one a lane thread), uniformly
// random order over a file of the working set, prefilled, in the folder where the drives' stores lie, or in
// memory (tmpfs) where drives are memory; with the promise of the array's stores: --durability process is a
// plain buffered write, power is O_DSYNC, --direct is O_DIRECT. Files and buffers are registered and requests
// handed in by eights, in fio's favour.
//
// What is not, and who gains: fio keeps one copy, sums nothing, checks nothing of what it reads and has no
// second thread to hand work to, for the kernel copies within the call; the array keeps `replicas` copies
// with CRC and record, its lanes compare every word, and engine threads emulate NIC and SSDs. fio's own
// bookkeeping (some 0.5 us an operation) is in its figures.
#pragma once

#include <gnstor/embedded_array.hpp>

#include "result.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace gnstor::bench {

struct FioRun {
    std::uint32_t bytes = 4096;
    bool write = false;
    std::uint32_t depth = 1, threads = 1;
    double seconds = 1;
    std::uint64_t order_seed = 1;
    bool dsync = false, direct = false;
    bool sqpoll = false;  ///< a kernel thread takes what is handed in: two threads, as the array has
};

class Fio {
  public:
    /// Makes and fills the file in a folder of its own in `where`; empty: in memory. kUnsupported: there is
    /// no fio; kNoSpace: the file does not fit.
    static Result<std::unique_ptr<Fio>> open(const std::filesystem::path& where, std::uint64_t bytes);
    /// Takes file and folder away.
    ~Fio();
    Fio(const Fio&) = delete;
    Fio& operator=(const Fio&) = delete;

    [[nodiscard]] const std::string& version() const { return version_; }
    [[nodiscard]] bool in_memory() const { return in_memory_; }
    Result<Repeat> run(const FioRun& run) const;

  private:
    Fio() = default;
    std::string version_;
    std::filesystem::path folder_;
    std::uint64_t bytes_ = 0;
    bool in_memory_ = false;
};

/// The repeat that fio's own result (--output-format=json) tells of. kCorrupt: it is none.
Result<Repeat> fio_repeat(const std::string& output, bool write);

}  // namespace gnstor::bench
