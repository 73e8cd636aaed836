// process.hpp: runs one of the system's tools and collects what it prints. Host, one thread.
#pragma once

#include <gnstor/base/result.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace gnstor::demo {

struct ProcessOutput {
    int exit_code;
    std::string out;
};

/// Whether a signal of the terminal (Ctrl-C) reaches the process as it does this one.
enum class Shield : std::uint8_t { kNone, kFromTerminal };

/// Runs `arguments[0]` from PATH with LC_ALL=C; standard error passes through. Killed after `timeout_ms`: an
/// Error.
Result<ProcessOutput> run_process(const std::vector<std::string>& arguments, std::uint32_t timeout_ms,
                                  Shield shield = Shield::kNone);

}  // namespace gnstor::demo
