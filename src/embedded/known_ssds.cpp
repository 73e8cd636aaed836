#include "embedded/known_ssds.hpp"

#include <gnstor/base/uuid.hpp>

#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

namespace gnstor::embedded {
namespace {

using nlohmann::json;

Result<KnownNode> node_from(const json& value) {
    KnownNode node;
    node.where = {value.at("address").get<std::string>(), value.at("port").get<std::string>()};
    for (const json& ssd : value.at("ssds")) {
        daemon::SsdIdentity identity;
        GN_ASSIGN(const Uuid uuid, Uuid::parse(ssd.at("uuid").get<std::string>()));
        identity.uuid = uuid.bytes;
        identity.nic_address = ssd.at("address").get<std::string>();
        identity.service = ssd.at("service").get<std::string>();
        identity.subsystem_nqn = ssd.at("nqn").get<std::string>();
        identity.serial = ssd.at("serial").get<std::string>();
        identity.capacity_blocks = ssd.at("capacity_blocks").get<std::uint64_t>();
        node.ssds.push_back(std::move(identity));
    }
    return node;
}

}  // namespace

Result<std::vector<KnownNode>> read_known(const std::filesystem::path& file) {
    std::ifstream in(file);
    if (!in) return std::vector<KnownNode>{};
    std::ostringstream text;
    text << in.rdbuf();
    const auto wrong = [&](const std::string& why) {
        return error(
            Errc::kCorrupt,
            "{} does not list the SSDs of the nodes ({}); remove it and restart gnstord while all nodes run",
            file.string(), why);
    };
    try {
        const json document = json::parse(text.str());
        std::vector<KnownNode> nodes;
        for (const json& value : document.at("nodes")) {
            auto node = node_from(value);
            if (!node.ok()) return wrong(node.error().message);
            nodes.push_back(std::move(node).value());
        }
        return nodes;
    } catch (const json::exception& e) {
        return wrong(e.what());
    }
}

Result<void> write_known(const std::filesystem::path& file, const std::vector<KnownNode>& nodes) {
    json list = json::array();
    for (const KnownNode& node : nodes) {
        json ssds = json::array();
        for (const daemon::SsdIdentity& ssd : node.ssds)
            ssds.push_back({{"uuid", Uuid{ssd.uuid}.to_string()},
                            {"address", ssd.nic_address},
                            {"service", ssd.service},
                            {"nqn", ssd.subsystem_nqn},
                            {"serial", ssd.serial},
                            {"capacity_blocks", ssd.capacity_blocks}});
        list.push_back({{"address", node.where.address}, {"port", node.where.port}, {"ssds", ssds}});
    }
    const std::string text = json{{"nodes", list}}.dump(2) + '\n';
    std::ostringstream there;
    if (std::ifstream in(file); in) there << in.rdbuf();
    if (there.str() == text) return {};  // nothing to do, even on a read-only file system
    const std::filesystem::path beside = file.string() + ".new";
    std::ofstream out(beside, std::ios::trunc);
    out << text;
    out.close();
    std::error_code failed;
    if (out) std::filesystem::rename(beside, file, failed);
    if (!out || failed)
        return error(Errc::kIo, "{} cannot be written: {}", file.string(),
                     failed ? failed.message() : std::strerror(errno));
    return {};
}

}  // namespace gnstor::embedded
