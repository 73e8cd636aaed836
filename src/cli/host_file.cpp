#include "cli/host_file.hpp"

#include "cli/daemon_process.hpp"
#include "cli/output.hpp"
#include "cli/process.hpp"
#include "nvmf/protocol/nqn.hpp"

#include <gnstor/base/log.hpp>
#include <gnstor/base/private_file.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

namespace gnstor::cli {

namespace {

using nlohmann::json;
using nvmf::auth::DhchapKey;
using nvmf::auth::DhchapKeys;

constexpr int kVersion = 1;
constexpr std::chrono::milliseconds kLookEvery{500};
constexpr std::chrono::milliseconds kLockWait{10'000};
constexpr std::size_t kBytesMax = 64u << 10;  // some 190 hosts
constexpr PrivateFileWords kWords{"list of hosts", "replace their keys (gnstor gateway host rotate)"};

Error malformed(const std::string& what) {
    return error(Errc::kCorrupt,
                 "the list of hosts is malformed: {}; mend it by hand, or delete the file and add the hosts "
                 "again with 'gnstor gateway host add'",
                 what);
}

/// JSON in which no object names a member twice: it would be a guess which of two keys counts. nullopt: the
/// text is malformed.
std::optional<json> parse_strictly(std::string_view text) {
    std::vector<std::set<std::string>> names;  // of the objects that are open
    bool twice = false;
    const auto look = [&](int, json::parse_event_t event, json& parsed) {
        if (event == json::parse_event_t::object_start) names.emplace_back();
        if (event == json::parse_event_t::object_end) names.pop_back();
        if (event == json::parse_event_t::key)
            twice = !names.back().insert(parsed.get<std::string>()).second || twice;
        return true;
    };
    json read = json::parse(text, look, false);
    if (read.is_discarded() || twice) return std::nullopt;
    return read;
}

/// Whether it is an object with no members but these.
bool has_only(const json& object, std::initializer_list<std::string_view> names) {
    return object.is_object() && std::ranges::all_of(object.items(), [&](const auto& member) {
               return std::ranges::find(names, member.key()) != names.end();
           });
}

Result<DhchapKey> key_of(const json& host, const char* member, const std::string& nqn) {
    const auto text = host.find(member);
    if (text == host.end() || !text->is_string())
        return malformed(fmt::format("\"{}\" of host {} is missing, or no text", member, nqn));
    auto key = DhchapKey::parse(text->get_ref<const std::string&>());
    if (!key.ok()) return malformed(fmt::format("\"{}\" of host {}: {}", member, nqn, key.error().message));
    return key;
}

Result<ListedHost> host_of(const json& host, std::size_t number) {
    if (!has_only(host, {"nqn", "key", "controller_key"}))
        return malformed(
            fmt::format("host {} is no object of \"nqn\", \"key\" and \"controller_key\" alone", number));
    const auto nqn = host.find("nqn");
    if (nqn == host.end() || !nqn->is_string())
        return malformed(fmt::format("\"nqn\" of host {} is missing, or no text", number));
    const auto& name = nqn->get_ref<const std::string&>();
    // Its text goes into errors, and may be a key that was put in the wrong place.
    if (!nvmf::is_valid_nqn(name))
        return malformed(fmt::format("\"nqn\" of host {} is no NVMe Qualified Name", number));
    GN_ASSIGN(DhchapKey key, key_of(host, "key", name));
    ListedHost listed{name, {std::move(key), std::nullopt}};
    if (host.contains("controller_key")) {
        GN_ASSIGN(listed.keys.controller, key_of(host, "controller_key", name));
    }
    return listed;
}

}  // namespace

std::string key_text(const DhchapKey& key) {
    const nvmf::auth::Secret text = key.text();
    return {reinterpret_cast<const char*>(text.view().data()), text.size()};
}

Result<std::vector<ListedHost>> parse_hosts(std::string_view text) {
    const std::optional<json> list = parse_strictly(text);
    if (!list) return malformed("it is no JSON, or names a member twice");
    if (!has_only(*list, {"version", "hosts"}))
        return malformed("it is no object of \"version\" and \"hosts\" alone");
    const auto version = list->find("version");
    if (version == list->end() || !version->is_number_integer() || *version != kVersion)
        return malformed(fmt::format("\"version\" is not {}", kVersion));
    const auto hosts = list->find("hosts");
    if (hosts == list->end() || !hosts->is_array()) return malformed("\"hosts\" is missing, or no list");
    std::vector<ListedHost> listed;
    for (const json& host : *hosts) {
        GN_ASSIGN(ListedHost one, host_of(host, listed.size() + 1));
        listed.push_back(std::move(one));
    }
    if (const auto good = nvmf::check_hosts(listed); !good.ok()) return malformed(good.error().message);
    return listed;
}

std::string format_hosts(const std::vector<ListedHost>& hosts) {
    json list = json::array();
    for (const ListedHost& host : hosts) {
        json one{{"nqn", host.nqn}, {"key", key_text(host.keys.host)}};
        if (host.keys.controller) one["controller_key"] = key_text(*host.keys.controller);
        list.push_back(std::move(one));
    }
    return json{{"version", kVersion}, {"hosts", std::move(list)}}.dump(2);
}

Result<std::vector<ListedHost>> read_hosts(const std::filesystem::path& file) {
    GN_ASSIGN(const std::string text, read_private_file(file, kBytesMax + 1, kWords));
    if (text.size() > kBytesMax)
        return error(Errc::kCorrupt, "the list of hosts {} has more than {} bytes; remove hosts from it",
                     file.string(), kBytesMax);
    auto hosts = parse_hosts(text);
    if (!hosts.ok()) return error(hosts.error().code, "{}: {}", file.string(), hosts.error().message);
    return hosts;
}

Result<void> change_hosts(const std::filesystem::path& file,
                          const std::function<Result<void>(std::vector<ListedHost>&)>& change) {
    const std::filesystem::path lock_file = file.parent_path() / kHostsLockFile;
    GN_ASSIGN(const std::unique_ptr<LockedFile> lock,
              LockedFile::take(lock_file,
                               fmt::format("another program is changing {}: it holds {}; try again",
                                           file.string(), lock_file.string()),
                               kLockWait));
    auto hosts = read_hosts(file);
    if (!hosts.ok() && hosts.error().code != Errc::kNotFound) return hosts.error();
    std::vector<ListedHost> list;
    if (hosts.ok()) list = std::move(hosts).value();
    GN_TRY(change(list));
    GN_TRY(nvmf::check_hosts(list));
    const std::string text = format_hosts(list) + "\n";
    if (text.size() > kBytesMax)
        return error(Errc::kNoSpace, "{} cannot list more hosts: it may have {} bytes; remove hosts first",
                     file.string(), kBytesMax);
    return replace_private_file(file, text, kWords.name);
}

Result<std::unique_ptr<HostFileWatch>> HostFileWatch::start(std::filesystem::path file,
                                                            std::shared_ptr<nvmf::HostList> list) {
    std::unique_ptr<HostFileWatch> watch(new HostFileWatch(std::move(file), std::move(list)));
    const auto read = watch->read();
    if (!read.ok() && read.error().code != Errc::kNotFound) return read.error();
    watch->was_read_ = read.ok();
    watch->thread_ = std::thread([of = watch.get()] { of->run(); });
    return watch;
}

HostFileWatch::~HostFileWatch() {
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
    }
    ends_.notify_all();
    if (thread_.joinable()) thread_.join();
}

void HostFileWatch::run() {
    std::unique_lock lock(mutex_);
    while (!ends_.wait_for(lock, kLookEvery, [this] { return ending_; })) {
        lock.unlock();
        look();
        lock.lock();
    }
}

/// Always all of it: by its times and its size alone, a file that changes twice in a moment looks unchanged.
Result<void> HostFileWatch::read() {
    auto hosts = read_hosts(file_);
    if (!hosts.ok()) return hosts.error();
    GN_TRY(list_->replace(std::move(hosts).value()));
    return {};
}

void HostFileWatch::look() {
    const std::lock_guard lock(mutex_);
    const std::uint64_t before = list_->version();
    const auto done = read();
    if (done.ok()) {
        was_read_ = true;
        if (!std::exchange(trouble_, {}).empty() || list_->version() != before)
            log_warn("{}: {} may use the gateway from now on", file_.string(),
                     counted(list_->size(), "host"));
        return;
    }
    if (done.error().code == Errc::kNotFound && !was_read_) return;
    if (trouble_ == done.error().message) return;
    trouble_ = done.error().message;
    log_error("{}; the last good list stays in force: {} may use the gateway", trouble_,
              counted(list_->size(), "host"));
}

std::string HostFileWatch::trouble() const {
    const std::lock_guard lock(mutex_);
    return trouble_;
}

}  // namespace gnstor::cli
