#include "daemon/http/http_client.hpp"

#include "daemon/http/api_json.hpp"
#include "daemon/http/http_service.hpp"
#include "daemon/http/json_schema.hpp"
#include "daemon/http/loopback_listener.hpp"
#include "daemon/http/no_sigpipe.hpp"
#include "daemon/http/openssl_objects.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <httplib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

namespace gnstor::daemon {
namespace {

using nlohmann::json;

std::string escaped(const std::string& name) {
    std::string out;
    for (const char c : name) {
        const auto u = static_cast<unsigned char>(c);
        if (std::isalnum(u) != 0 || c == '.' || c == '_' || c == '-')
            out += c;
        else
            out += fmt::format("%{:02X}", static_cast<unsigned>(u));
    }
    return out;
}

/// Why a Unix socket does not answer, and what to do.
std::string why_unreachable(const std::filesystem::path& socket) {
    const std::string where = socket.string();
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (where.size() >= sizeof(address.sun_path))
        return fmt::format("the socket path {} has {} characters; a Unix socket takes {}", where,
                           where.size(), sizeof(address.sun_path) - 1);
    struct stat info {};
    if (::stat(where.c_str(), &info) != 0)
        return errno == EACCES
                   ? fmt::format(
                         "the socket {} cannot be reached: this user has no permission for its folder", where)
                   : fmt::format("gnstord does not answer: there is no socket {}; 'gnstor up' starts one",
                                 where);
    if (!S_ISSOCK(info.st_mode)) return fmt::format("{} is not a socket; see --dir and --socket", where);
    std::memcpy(address.sun_path, where.c_str(), where.size());
    const int probe = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int failed =
        ::connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ? 0 : errno;
    ::close(probe);
    if (failed == ECONNREFUSED)
        return fmt::format(
            "gnstord does not answer: the socket {} is stale, its gnstord was killed; 'gnstor up' starts it "
            "again and recovers everything that was acknowledged",
            where);
    if (failed == EACCES || failed == EPERM)
        return fmt::format("the socket {} belongs to another user's gnstord", where);
    return fmt::format("gnstord at {} ended the connection without an answer; try again", where);
}

}  // namespace

namespace {

/// One gnstord.
struct Server {
    HttpClientOptions options;
    std::string where;
    std::chrono::milliseconds connects;  ///< how long a connection may take
};

/// A server that does not answer in this time is not waited for, if there are others.
constexpr std::chrono::milliseconds kConnects{2'000};

std::vector<Server> servers_of(const HttpClientOptions& all) {
    std::vector<Server> servers;
    const std::chrono::milliseconds connects = all.others.empty() ? all.deadline : kConnects;
    const auto add = [&](const HttpClientOptions& o) {
        servers.push_back(
            {o, o.socket.empty() ? fmt::format("{}:{}", o.host, o.port) : o.socket.string(), connects});
    };
    add(all);
    for (const HttpClientOptions& other : all.others) add(other);
    return servers;
}

/// How long a request may wait for a standby to take over, and how often it asks.
constexpr std::chrono::milliseconds kTakeover{15'000}, kAskAgain{250};

/// What a server answered, or why it did not.
struct Asked {
    Result<json> answer;
    bool elsewhere = false;  ///< it was not carried out; another gnstord may do it
    bool answered = true;
};

}  // namespace

struct HttpControlPlane::Impl {
    explicit Impl(const HttpClientOptions& o) : servers(servers_of(o)), deadline(o.deadline) {}
    const std::vector<Server> servers;  // of one array
    const std::chrono::milliseconds deadline;
    std::mutex mutex;        // guards everything below
    std::size_t leader = 0;  // index of the server that answered last
    std::map<nvme::VolumeId, std::string>
        names;  // names of volumes seen: HTTP addresses a volume by name, ControlPlane by VID

    template <class Send>
    Result<json> ask(Send send);
    template <class Send>
    static Asked ask_one(const Server& server, std::chrono::steady_clock::time_point until, Send send);
    static Asked read_answer(const httplib::Response& answer, const std::string& where);
    [[nodiscard]] static Error no_answer(const Server& server, httplib::Error failure, bool late,
                                         const TlsVerifier* verifier);
    Result<std::string> name_of(HttpControlPlane& self, nvme::VolumeId volume);
    void remember(const nvme::VolumeRecord& record) {
        const std::scoped_lock lock(mutex);
        names[record.geometry.volume] = record.name;
    }
};

namespace {

/// A client for one request, and under TLS what checks its server.
struct OneRequest {
    std::unique_ptr<TlsVerifier> verifier;  // outlives the client, which refers to it
    std::unique_ptr<httplib::ClientImpl> client;
};

/// `connects`: how long a connection may take.
Result<OneRequest> client_for(const HttpClientOptions& options, std::chrono::steady_clock::time_point until,
                              std::chrono::milliseconds connects) {
    OneRequest one;
    if (options.tls && options.socket.empty()) {
        auto client = std::make_unique<httplib::SSLClient>(options.host, options.port);
        // Not httplib's check, which would come after the handshake and knows no fingerprints, but ours in
        // it.
        client->enable_server_certificate_verification(false);
        GN_ASSIGN(one.verifier, TlsVerifier::install(client->ssl_context(), options.host, options.port,
                                                     *options.tls, until));
        one.client = std::move(client);
    } else {
        std::string trusted;
        if (options.socket.empty() && !options.token.empty()) {
            GN_ASSIGN(trusted, trusted_listener(options.host, options.port));
        }
        one.client = std::make_unique<httplib::ClientImpl>(
            options.socket.empty() ? options.host : options.socket.string(),
            options.socket.empty() ? options.port : 80);
        // Not to another address of the same name, on which another user may begin to listen.
        if (!trusted.empty()) one.client->set_hostname_addr_map({{options.host, trusted}});
    }
    if (!options.socket.empty()) one.client->set_address_family(AF_UNIX);
    if (!options.token.empty()) one.client->set_bearer_token_auth(options.token.c_str());
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    const std::chrono::milliseconds time = std::max(left, std::chrono::milliseconds(1));
    one.client->set_connection_timeout(std::min(time, connects));
    one.client->set_read_timeout(time);
    one.client->set_write_timeout(time);
    return one;
}

}  // namespace

template <class Send>
Asked HttpControlPlane::Impl::ask_one(const Server& server, std::chrono::steady_clock::time_point until,
                                      Send send) {
    // A new client per request, so that no connection is reused which the server has closed meanwhile.
    Result<OneRequest> one = client_for(server.options, until, server.connects);
    // An error without a request, as of a certificate's file or of a port on which nobody listens.
    if (!one.ok()) return {one.error(), one.error().code == Errc::kIo, false};
    const NoSigpipe guard;
    ERR_clear_error();
    const httplib::Result answer = send(*one->client);
    if (answer) return read_answer(*answer, server.where);
    const bool late = std::chrono::steady_clock::now() >= until;
    const bool not_sent = answer.error() != httplib::Error::Read && answer.error() != httplib::Error::Write;
    Error why = no_answer(server, answer.error(), late, one->verifier.get());
    return {why, not_sent && why.code != Errc::kPermission, false};
}

template <class Send>
Result<json> HttpControlPlane::Impl::ask(Send send) {
    const auto began = std::chrono::steady_clock::now();
    const auto until = began + deadline;
    std::size_t at = 0;
    {
        const std::scoped_lock lock(mutex);
        at = leader;
    }
    for (std::size_t tried = 1;; ++tried) {
        Asked asked = ask_one(servers[at], until, send);
        const std::size_t next = (at + 1) % servers.size();
        if (!asked.elsewhere || servers.size() == 1) {
            // One that fell silent may hang: it may have carried the request out, but the next one goes elsewhere.
            const bool silent = !asked.answered;
            const std::scoped_lock lock(mutex);
            leader = silent ? next : at;
            return std::move(asked.answer);
        }
        at = next;
        if (tried % servers.size() != 0) continue;
        // All of them: the leader has ended, and a standby is about to take over.
        const auto now = std::chrono::steady_clock::now();
        if (now + kAskAgain >= std::min(until, began + kTakeover)) return std::move(asked.answer);
        std::this_thread::sleep_for(kAskAgain);
    }
}

/// `late`: the deadline has passed.
Error HttpControlPlane::Impl::no_answer(const Server& server, httplib::Error failure, bool late,
                                        const TlsVerifier* verifier) {
    const HttpClientOptions& options = server.options;
    const std::string& where = server.where;
    if (verifier != nullptr && !verifier->refusal().empty())
        return error(Errc::kPermission, "{}", verifier->refusal());
    const bool in_handshake = failure == httplib::Error::SSLConnection;
    if (in_handshake && late)
        return error(Errc::kTimedOut,
                     "the server at {} did not complete the TLS handshake in time; is it gnstord, with TLS?",
                     where);
    if (in_handshake) return error(Errc::kIo, "{}", why_no_handshake(where));
    // If the daemon dies during the request, the read fails too, but before the deadline.
    const bool slow = failure == httplib::Error::Read && late;
    if (!slow && !options.socket.empty()) return error(Errc::kIo, "{}", why_unreachable(options.socket));
    return error(
        slow ? Errc::kTimedOut : Errc::kIo, "gnstord does not answer at {} ({}); {}", where,
        httplib::to_string(failure),
        options.socket.empty()
            ? "check the name and the port of its machine; 'gnstor status' there shows where it listens"
            : "is it running? 'gnstor up' starts one");
}

Asked HttpControlPlane::Impl::read_answer(const httplib::Response& answer, const std::string& where) {
    const bool text = answer.get_header_value("Content-Type").rfind("text/plain", 0) == 0;
    if (text && answer.status == 200) return {json(answer.body)};
    Result<json> body = parse_json(answer.body);
    if (!body.ok())
        return {error(Errc::kCorrupt, "what answers at {} is not gnstord: {}", where, body.error().message)};
    if (answer.status / 100 == 2) return {std::move(body)};
    try {
        const json& e = body->at("error");
        const std::string code = e.at("code").get<std::string>();
        return {Error{errc_from_name(code), e.at("message").get<std::string>()}, code == kStandbyCode};
    } catch (const json::exception&) {
        return {error(Errc::kCorrupt, "what answers at {} is not gnstord: status {} without an error", where,
                      answer.status)};
    }
}

HttpControlPlane::HttpControlPlane(const HttpClientOptions& options)
    : impl_(std::make_unique<Impl>(options)) {}
HttpControlPlane::~HttpControlPlane() = default;

Result<json> HttpControlPlane::get(const std::string& target) {
    return impl_->ask([&](httplib::ClientImpl& c) { return c.Get(target.c_str()); });
}
Result<json> HttpControlPlane::post(const std::string& target, const json& body) {
    return impl_->ask([&](httplib::ClientImpl& c) {
        return c.Post(target.c_str(), body.dump(-1, ' ', false, json::error_handler_t::replace),
                      "application/json");
    });
}
Result<json> HttpControlPlane::post(const std::string& target) {
    return impl_->ask([&](httplib::ClientImpl& c) { return c.Post(target.c_str()); });
}
Result<json> HttpControlPlane::del(const std::string& target) {
    return impl_->ask([&](httplib::ClientImpl& c) { return c.Delete(target.c_str()); });
}

Result<std::string> HttpControlPlane::Impl::name_of(HttpControlPlane& self, nvme::VolumeId volume) {
    {
        const std::scoped_lock lock(mutex);
        if (const auto known = names.find(volume); known != names.end()) return known->second;
    }
    GN_ASSIGN(const std::vector<nvme::VolumeRecord> all, self.list_volumes());
    for (const nvme::VolumeRecord& record : all)
        if (record.geometry.volume == volume) return std::string(record.name);
    return error(Errc::kNotFound, "there is no volume with VID {}", volume);
}

Result<client::ClientIdentity> HttpControlPlane::register_client(const std::string& name) {
    GN_ASSIGN(const json answer, post("/v1/clients", {{"name", name}}));
    return client_from_json(answer);
}

Result<client::ClientAccess> HttpControlPlane::add_client(const std::string& name) {
    GN_ASSIGN(const json answer, post("/v1/clients/" + escaped(name) + "/add"));
    return client_access_from_json(answer);
}

Result<client::ClientAccess> HttpControlPlane::rotate_client(const std::string& name) {
    GN_ASSIGN(const json answer, post("/v1/clients/" + escaped(name) + "/rotate"));
    return client_access_from_json(answer);
}

Result<void> HttpControlPlane::replace_ssd(std::uint32_t slot) {
    GN_TRY(post(fmt::format("/v1/slots/{}/replace", slot)));
    return {};
}

Result<void> HttpControlPlane::start_scrub() {
    GN_TRY(post("/v1/scrub"));
    return {};
}

Result<void> HttpControlPlane::remove_client(const std::string& name) {
    GN_TRY(post("/v1/clients/" + escaped(name) + "/remove"));
    return {};
}

Result<std::vector<client::SsdKeys>> HttpControlPlane::ssd_keys(nvme::ClientId client) {
    GN_ASSIGN(const json answer, get(fmt::format("/v1/clients/{}/keys", client)));
    return ssd_keys_from_json(answer);
}

Result<client::ArrayView> HttpControlPlane::array() {
    GN_ASSIGN(const json answer, get("/v1/array"));
    return array_from_json(answer);
}

Result<nvme::VolumeRecord> HttpControlPlane::create_volume(nvme::ClientId client,
                                                           const client::CreateVolume& request) {
    GN_ASSIGN(const json answer, post("/v1/volumes", {{"client", client},
                                                      {"name", request.name},
                                                      {"capacity_bytes", request.capacity_bytes},
                                                      {"chunk_bytes", request.chunk_bytes},
                                                      {"replicas", request.replicas},
                                                      {"any_writer", request.any_writer}}));
    GN_ASSIGN(const nvme::VolumeRecord record, volume_from_json(answer));
    impl_->remember(record);
    return record;
}

Result<client::OpenedVolume> HttpControlPlane::open_volume(nvme::ClientId client, const std::string& name,
                                                           client::OpenMode mode) {
    const char* word = mode == client::OpenMode::kWrite ? "write" : "read";
    GN_ASSIGN(const json answer,
              post("/v1/volumes/" + escaped(name) + "/open", {{"client", client}, {"mode", word}}));
    if (!answer.contains("volume") || !answer.contains("lease_ms") ||
        !answer.at("lease_ms").is_number_unsigned())
        return error(Errc::kCorrupt, "what answers is not gnstord: its answer to an opening has no lease");
    GN_ASSIGN(const nvme::VolumeRecord record, volume_from_json(answer.at("volume")));
    impl_->remember(record);
    return client::OpenedVolume{record, mode, answer.at("lease_ms").get<std::uint64_t>()};
}

Result<std::uint64_t> HttpControlPlane::renew_lease(nvme::ClientId client, nvme::VolumeId volume,
                                                    nvme::Epoch epoch) {
    GN_ASSIGN(const std::string name, impl_->name_of(*this, volume));
    GN_ASSIGN(const json answer, post("/v1/volumes/" + escaped(name) + "/renew",
                                      {{"client", client}, {"epoch", epoch}, {"volume", volume}}));
    if (!answer.contains("lease_ms") || !answer.at("lease_ms").is_number_unsigned())
        return error(Errc::kCorrupt, "what answers is not gnstord: its answer to a renewal has no lease");
    return answer.at("lease_ms").get<std::uint64_t>();
}

Result<void> HttpControlPlane::release_volume(nvme::ClientId client, nvme::VolumeId volume, nvme::Epoch epoch,
                                              std::uint64_t byte_length) {
    GN_ASSIGN(const std::string name, impl_->name_of(*this, volume));
    json body{{"client", client}, {"epoch", epoch}, {"volume", volume}};
    if (byte_length != ~0ull) body["byte_length"] = byte_length;
    GN_TRY(post("/v1/volumes/" + escaped(name) + "/release", body));
    return {};
}

Result<void> HttpControlPlane::share_volume(nvme::ClientId owner, const std::string& name,
                                            nvme::ClientId reader) {
    json body{{"client", owner}};
    if (reader != 0) body["reader"] = reader;
    GN_TRY(post("/v1/volumes/" + escaped(name) + "/share", body));
    return {};
}

Result<void> HttpControlPlane::unshare_volume(nvme::ClientId owner, const std::string& name,
                                              nvme::ClientId reader) {
    json body{{"client", owner}};
    if (reader != 0) body["reader"] = reader;
    GN_TRY(post("/v1/volumes/" + escaped(name) + "/unshare", body));
    return {};
}

Result<void> HttpControlPlane::delete_volume(nvme::ClientId owner, const std::string& name) {
    GN_TRY(del(fmt::format("/v1/volumes/{}?client={}", escaped(name), owner)));
    return {};
}

Result<std::vector<nvme::VolumeRecord>> HttpControlPlane::list_volumes() {
    GN_ASSIGN(const json answer, get("/v1/volumes"));
    if (!answer.contains("volumes") || !answer.at("volumes").is_array())
        return error(Errc::kCorrupt, "what answers is not gnstord: its list of volumes has no volumes field");
    std::vector<nvme::VolumeRecord> all;
    for (const json& value : answer.at("volumes")) {
        GN_ASSIGN(const nvme::VolumeRecord record, volume_from_json(value));
        impl_->remember(record);
        all.push_back(record);
    }
    return all;
}

}  // namespace gnstor::daemon
