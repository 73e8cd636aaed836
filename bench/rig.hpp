// rig.hpp: an array with one filled volume, ready to be measured. Host, one thread.
//
// Owns array, or the way to one that others serve, client and the volume's opening; destroyed in reverse,
// stores last: nothing is left behind.
#pragma once

#include "bench/initiators/bed.hpp"
#include "engine_options.hpp"
#include "path_lanes.hpp"

#include <filesystem>
#include <memory>
#include <vector>

namespace gnstor::bench {

struct RigOptions {
    std::uint32_t ssds = 4, replicas = 2;
    EngineOptions engine;  ///< complete
    std::uint64_t working_set = 0;
    std::uint64_t write_budget = 0;  ///< bytes that may be programmed after filling, on all SSDs together
    std::uint64_t seed = 1;
    std::uint32_t bytes_max = nvme::kBlockBytes;  ///< the largest operation
    std::filesystem::path
        store;  ///< folder for stores, in a folder of its own that goes with the rig; empty: memory
    SsdDurability durability = SsdDurability::kDefault;
    bool direct_io = false;
    std::string profile = "none";  ///< of the hardware that is modelled
    ServedArrayOptions served;     ///< where it names an array, that one: of an own one nothing counts then
};

class Rig {
  public:
    static Result<std::unique_ptr<Rig>> build(const RigOptions& options, const LaneShape& shape,
                                              PathLanes& lanes);
    ~Rig();
    Rig(const Rig&) = delete;
    Rig& operator=(const Rig&) = delete;

    /// Reconnects, with channels for lanes of another mode, and opens the volume again.
    Result<void> share_channels(Sharing sharing);
    [[nodiscard]] client::Client& client() { return *client_; }
    [[nodiscard]] const client::Volume& volume() const { return *volume_; }
    [[nodiscard]] Bed& bed() { return *bed_; }
    /// How many random writes of `bytes` the drives surely take before they collect garbage: each
    /// needs a free page a block and replica. All ones where others serve them, who are asked for nothing.
    [[nodiscard]] std::uint64_t writes_max(std::uint32_t bytes) const;

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
    std::unique_ptr<Bed> bed_;
    std::unique_ptr<client::Client> client_;
    std::unique_ptr<client::Volume> volume_;
};

}  // namespace gnstor::bench
