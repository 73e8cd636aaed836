// model_factory.cpp: cli/array_factory.hpp for tests: model drives whose flash is written to a file at the
// end, objects as plain files.
#include "cli/array_factory.hpp"
#include "daemon/decisions/in_process.hpp"
#include "daemon/model_ssd.hpp"

#include <fstream>

namespace gnstor::cli {
namespace {

/// Model drives keep their records in one file a drive, so that a daemon finds them again.
class ModelServed final : public ServedArray {
  public:
    ModelServed(const ArrayOptions& options) : directory_(options.directory), array_(options.ssds) {
        for (std::size_t s = 0; s < array_.flash.size(); ++s) {
            std::ifstream in(file(s), std::ios::binary);
            auto& flash = *array_.flash[s];
            in.read(reinterpret_cast<char*>(&flash.term), sizeof(flash.term));
            if (!in) flash.term = 0;
            for (nvme::VolumeRecord r; in.read(reinterpret_cast<char*>(&r), sizeof(r));)
                flash.volumes[r.geometry.volume] = r;
        }
    }
    ~ModelServed() override {
        control_.reset();
        for (std::size_t s = 0; s < array_.flash.size(); ++s) {
            std::ofstream out(file(s), std::ios::binary | std::ios::trunc);
            out.write(reinterpret_cast<const char*>(&array_.flash[s]->term), sizeof(array_.flash[s]->term));
            for (const auto& [id, r] : array_.flash[s]->volumes)
                out.write(reinterpret_cast<const char*>(&r), sizeof(r));
        }
    }
    Result<void> start(std::unique_ptr<daemon::RecordStore> store, std::uint64_t lease_ms) {
        daemon::InProcessOptions options;
        options.manager.lease_ms = lease_ms;
        GN_ASSIGN(control_, daemon::InProcessControlPlane::start(std::move(store), array_.ports(), options));
        return {};
    }
    client::ControlPlane& control() override { return *control_; }
    daemon::Inspector& inspector() override { return *control_; }

  private:
    [[nodiscard]] std::filesystem::path file(std::size_t s) const {
        return directory_ / fmt::format("model-{}.bin", s);
    }
    const std::filesystem::path directory_;
    daemon::test::ModelArray array_;
    std::unique_ptr<daemon::InProcessControlPlane> control_;
};

class ModelObjects final : public ObjectStore {
  public:
    explicit ModelObjects(std::filesystem::path directory) : directory_(std::move(directory)) {}
    Result<void> put(const std::string& name, std::istream& from, std::uint64_t,
                     const Progress& progress) override {
        if (std::filesystem::exists(directory_ / name))
            return error(Errc::kExists, "'{}' is stored already; remove it first", name);
        std::ofstream out(directory_ / name, std::ios::binary);
        std::uint64_t moved = 0;
        for (char c; from.get(c); ++moved) out.put(c);
        if (progress) progress(moved, moved);
        return {};
    }
    Result<ObjectGot> get(const std::string& name, std::ostream& to, bool, const Progress&) override {
        std::ifstream in(directory_ / name, std::ios::binary);
        if (!in) return error(Errc::kNotFound, "'{}' is not stored here; 'gnstor ls' shows what is", name);
        std::uint64_t moved = 0;
        for (char c; in.get(c); ++moved) to.put(c);
        return ObjectGot{.bytes = moved};
    }
    Result<std::vector<ObjectInfo>> list() override {
        std::vector<ObjectInfo> all;
        for (const auto& entry : std::filesystem::directory_iterator(directory_))
            all.push_back({entry.path().filename().string(), entry.file_size(), 2});
        return all;
    }
    Result<void> remove(const std::string& name) override {
        if (!std::filesystem::remove(directory_ / name))
            return error(Errc::kNotFound, "'{}' is not stored here", name);
        return {};
    }

  private:
    const std::filesystem::path directory_;
};

}  // namespace

Result<std::unique_ptr<ServedArray>> make_array(const ArrayOptions& options,
                                                std::unique_ptr<daemon::RecordStore> store) {
    auto array = std::make_unique<ModelServed>(options);
    GN_TRY(array->start(std::move(store), options.lease_ms));
    return std::unique_ptr<ServedArray>(std::move(array));
}

Result<std::unique_ptr<ServedNode>> make_node(const ArrayOptions&, const std::string&, const std::string&) {
    return error(Errc::kUnsupported, "models have no nodes");
}

Result<std::unique_ptr<ServedNode>> make_gateway(const RemoteArrayOptions&, const GatewayVolume&,
                                                 const std::string&) {
    return error(Errc::kUnsupported, "models have no wire");
}

Result<std::unique_ptr<ObjectStore>> open_remote_object_store(const RemoteArrayOptions&, const std::string&,
                                                              std::string&) {
    return error(Errc::kUnsupported, "models have no wire");
}

Result<std::unique_ptr<ObjectStore>> open_object_store(const ArrayOptions& options, bool) {
    std::filesystem::create_directories(options.directory);
    return std::unique_ptr<ObjectStore>(std::make_unique<ModelObjects>(options.directory));
}

}  // namespace gnstor::cli
