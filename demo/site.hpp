// site.hpp: the array that the demo works on, and what the demo may do to it: one in its own process, or one
// that others serve. Host, one thread.
#pragma once

#include <gnstor/client/array.hpp>

#include "archive.hpp"
#include "demo.hpp"

#include <memory>
#include <string>

namespace gnstor::demo {

/// Who stands for NIC and SSDs, and the CPU time that they took so far.
struct Hardware {
    std::string who;  ///< "threads gn-engine-0"; empty: not on this machine
    double cpu_seconds = 0;
};

class Site {
  public:
    virtual ~Site() = default;
    [[nodiscard]] virtual client::Array& array() = 0;
    /// Whether nobody else works there: then what SSDs count is what the demo sent.
    [[nodiscard]] virtual bool alone() const = 0;
    /// Takes the daemon away. False: it cannot be, and why_not says the reason.
    virtual Result<bool> suspend_daemon(std::string& why_not) = 0;
    /// Brings it back: for how long it was away. An error: it was not.
    virtual Result<double> resume_daemon() = 0;
    [[nodiscard]] virtual Hardware hardware() const = 0;
    /// What is emulated, for the closing words: wire and SSDs.
    [[nodiscard]] virtual std::string emulated() const = 0;
    /// What this run says nothing about.
    [[nodiscard]] virtual std::string not_tested() const = 0;
    /// Closes the array, flips one byte of a stored block behind the SSD's back, opens it again. No client
    /// may be there. Says which byte.
    virtual Result<std::string> flip_one_byte(std::uint32_t slot, nvme::VolumeId volume,
                                              nvme::BlockAddress block);
};

/// Capacity that each of `ssds` SSDs needs for the demo.
[[nodiscard]] std::uint64_t capacity_for(const Archive& archive, std::uint32_t ssds);

/// In this process; its stores lie below `work` if they are to outlive it.
Result<std::unique_ptr<Site>> make_embedded_site(const Options& options, const std::filesystem::path& work,
                                                 const Archive& archive, bool gpu);
/// At options.remote. kUnsupported in a build without it.
Result<std::unique_ptr<Site>> make_remote_site(const Options& options);

}  // namespace gnstor::demo
