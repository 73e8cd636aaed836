#include "embedded/node_key.hpp"

#include "nvmf/access/derived_hosts.hpp"
#include "nvmf/auth/random.hpp"
#include "nvmf/protocol/nqn.hpp"

#include <gnstor/base/private_file.hpp>

#include <algorithm>
#include <utility>

namespace gnstor::embedded {

using nvmf::auth::DhchapKey;

namespace {
constexpr std::size_t kKeyFileBytes = 4096;
constexpr PrivateFileWords kKeyWords{
    "key file",
    "replace the node's key (stop the node, remove the file, start the node, copy the new file to "
    "gnstord)"};
}  // namespace

Result<DhchapKey> read_node_key(const std::filesystem::path& file) {
    GN_ASSIGN(std::string text, read_private_file(file, kKeyFileBytes, kKeyWords));
    text.erase(text.find_last_not_of(" \r\n\t") + 1);
    auto key = DhchapKey::parse(text);
    // The text is as secret as the key.
    std::fill(text.begin(), text.end(), '\0');
    if (!key.ok())
        return error(Errc::kInvalidArgument,
                     "{} holds no key of a node; copy the file node.key again from the node that uses it",
                     file.string());
    return key;
}

Result<DhchapKey> read_or_make_node_key(const std::filesystem::path& file) {
    auto there = read_node_key(file);
    if (there.ok() || there.error().code != Errc::kNotFound) return there;
    GN_ASSIGN(const DhchapKey made, nvmf::auth::make_key());
    const nvmf::auth::Secret text = made.text();
    std::string line(reinterpret_cast<const char*>(text.view().data()), text.view().size());
    line += '\n';
    const Result<void> created = create_file(file, line, 0600, kKeyWords.name);
    std::fill(line.begin(), line.end(), '\0');
    GN_TRY(created);
    return read_node_key(file);
}

Result<std::shared_ptr<nvmf::HostRegistry>> hosts_of_node(const std::filesystem::path& file) {
    GN_ASSIGN(DhchapKey key, read_or_make_node_key(file));
    return std::shared_ptr<nvmf::HostRegistry>(
        std::make_shared<nvmf::DerivedHosts>(std::move(key), std::string(nvmf::kAdminHostNqn)));
}

Result<NodeKeys> NodeKeys::read(const std::vector<std::string>& words) {
    NodeKeys keys;
    for (const std::string& word : words) {
        // A path may have an equals sign, but an address has no slash.
        const std::size_t sign =
            std::min(word.find('='), word.find('/')) == word.find('=') ? word.find('=') : std::string::npos;
        const std::string address = sign == std::string::npos ? "" : word.substr(0, sign);
        const std::string file = sign == std::string::npos ? word : word.substr(sign + 1);
        GN_ASSIGN(DhchapKey key, read_node_key(file));
        Key& place = address.empty() ? keys.others_ : keys.by_address_[address];
        if (place != nullptr)
            return error(Errc::kInvalidArgument,
                         "two key files were given for {}; give one for each address, and one without an "
                         "address for all other nodes",
                         address.empty() ? "nodes without a file of their own" : "the node " + address);
        place = std::make_shared<const DhchapKey>(std::move(key));
    }
    return keys;
}

Result<void> NodeKeys::check_names_only(const std::vector<NodeAddress>& nodes) const {
    for (const auto& [address, key] : by_address_)
        if (std::ranges::none_of(nodes,
                                 [&a = address](const NodeAddress& node) { return node.address == a; }))
            return error(
                Errc::kInvalidArgument,
                "--node-key names the address {}, which is none of --nodes; write the node's address "
                "without its port",
                address);
    return {};
}

NodeKeys::Key NodeKeys::of(const std::string& address) const {
    const auto own = by_address_.find(address);
    return own != by_address_.end() ? own->second : others_;
}

}  // namespace gnstor::embedded
