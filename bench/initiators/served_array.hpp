// served_array.hpp: an array that other processes serve, as benchmarks need it: the way there, and whose CPU
// time is that of the emulated hardware. Host, one thread.
#pragma once

#include <gnstor/client/array.hpp>
#include <gnstor/embedded_array.hpp>

#include <memory>
#include <string>
#include <vector>

namespace gnstor::bench {

struct ServedArrayOptions {
    std::string array;       ///< unix:PATH, https://HOST:PORT or http://HOST:PORT of its gnstord; empty: none
    std::string token_file;  ///< of TCP
    std::string address;     ///< of this process on the udp wire; empty: chosen
    std::string tls_ca, tls_fingerprint;  ///< of https, as RemoteArrayOptions
};

struct HardwareProcess {
    std::string name;  ///< with its process id, as "gnstor-4711"
    double cpu_seconds;
};

class ServedArray {
  public:
    virtual ~ServedArray() = default;
    [[nodiscard]] virtual client::Array& array() = 0;
    /// Those that serve SSDs on this machine.
    [[nodiscard]] virtual std::vector<HardwareProcess> processes() const = 0;
    /// Of this process's own NIC; none on the shm wire, whose engines are the node's.
    [[nodiscard]] virtual std::vector<EngineThread> nic_threads() const = 0;
};

/// kUnsupported in a build without gnstord's client.
Result<std::unique_ptr<ServedArray>> open_served_array(const ServedArrayOptions& options);

}  // namespace gnstor::bench
