// rig.hpp: an array with one filled volume, ready to be measured. Host, one thread.
//
// Owns array, client and the volume's opening; destroyed in reverse, stores last: nothing is left behind.
#pragma once

#include <gnstor/embedded_array.hpp>

#include "engine_options.hpp"
#include "hardware_threads.hpp"
#include "path_lanes.hpp"

#include <filesystem>
#include <memory>
#include <vector>

namespace gnstor::bench {

struct RigOptions {
    std::uint32_t ssds, replicas;
    EngineOptions engine;  ///< complete
    std::uint64_t working_set;
    std::uint64_t write_budget;  ///< bytes that may be programmed after filling, on all SSDs together
    std::uint64_t seed;
    std::uint32_t bytes_max;  ///< the largest operation
    std::filesystem::path
        store;  ///< folder for stores, in a folder of its own that goes with the rig; empty: memory
    SsdDurability durability = SsdDurability::kDefault;
    bool direct_io = false;
    std::string profile = "none";  ///< of the hardware that is modelled
};

class Rig {
  public:
    static Result<std::unique_ptr<Rig>> build(const RigOptions& options, const LaneShape& shape,
                                              PathLanes& lanes);

    /// Connects anew, with channels for lanes of another mode, and opens the volume again.
    Result<void> share_channels(Sharing sharing);
    [[nodiscard]] client::Client& client() { return *client_; }
    [[nodiscard]] const client::Volume& volume() const { return *volume_; }
    [[nodiscard]] std::vector<EngineThread> engine_threads() const { return hardware_threads(*array_); }
    /// How many random writes of `bytes` the drives surely take before they collect garbage: each
    /// needs a free page a block and replica.
    [[nodiscard]] std::uint64_t writes_max(std::uint32_t bytes) const;
    /// Commands that drives answered, by their own count.
    [[nodiscard]] std::uint64_t commands() const;

  private:
    explicit Rig(const RigOptions& options) : options_(options) {}

    /// A folder that goes away with what is in it.
    struct Folder {
        std::filesystem::path path;
        Folder() = default;
        Folder(const Folder&) = delete;
        Folder& operator=(const Folder&) = delete;
        ~Folder();
    };

    const RigOptions options_;
    client::ClientOptions connection_;
    Folder folder_;
    std::unique_ptr<EmbeddedArray> array_;
    std::unique_ptr<client::Client> client_;
    std::unique_ptr<client::Volume> volume_;
};

}  // namespace gnstor::bench
