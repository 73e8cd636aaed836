#include "daemon/http/etcd_client.hpp"

#include "daemon/http/ip_address.hpp"
#include "daemon/http/no_sigpipe.hpp"
#include "daemon/http/openssl_objects.hpp"
#include "daemon/http/tls_trust.hpp"
#include "daemon/records/etcd_messages.hpp"

#include <fmt/ranges.h>
#include <httplib.h>

#include <algorithm>

namespace gnstor::daemon {
namespace {

using Clock = std::chrono::steady_clock;

/// Status codes of gRPC after which nothing was changed.
constexpr int kGrpcInvalidArgument = 3, kGrpcNotFound = 5, kGrpcPermission = 7, kGrpcExhausted = 8,
              kGrpcPrecondition = 9, kGrpcOutOfRange = 11, kGrpcUnimplemented = 12, kGrpcUnauthenticated = 16;

Errc errc_of_grpc(int code) {
    switch (code) {
        case kGrpcExhausted:
            return Errc::kNoSpace;
        case kGrpcPermission:
        case kGrpcUnauthenticated:
            return Errc::kPermission;
        case kGrpcNotFound:
            return Errc::kNotFound;
        case kGrpcInvalidArgument:
            return Errc::kInvalidArgument;
        case kGrpcUnimplemented:
            return Errc::kUnsupported;
        case kGrpcPrecondition:
        case kGrpcOutOfRange:
            return Errc::kBusy;
        default:
            return Errc::kIo;
    }
}

struct Received {
    int status = 0;  ///< 0: not even the head was received
    std::string body;
};

/// An answer has at most a page of records, or what a transaction read.
constexpr std::size_t kBodyMost = 64u << 20;

/// `until`: the answer is given up then, however slowly it comes.
httplib::Error post(httplib::ClientImpl& client, const std::string& path, const std::string& body,
                    Clock::time_point until, Received& received) {
    httplib::Request request;
    request.method = "POST";
    request.path = path;
    request.set_header("Content-Type", "application/json");
    request.body = body;
    request.response_handler = [&received](const httplib::Response& head) {
        received.status = head.status;
        return true;
    };
    request.content_receiver = [&received, until](const char* data, std::size_t bytes, std::uint64_t,
                                                  std::uint64_t) {
        received.body.append(data, bytes);
        return received.body.size() <= kBodyMost && Clock::now() < until;
    };
    return client.send(request).error();
}

class HttpEtcdPort final : public EtcdPort {
  public:
    explicit HttpEtcdPort(EtcdServers servers) : servers_(std::move(servers)) {
        std::vector<std::string> urls;
        for (const ArrayAddress& one : servers_.endpoints) urls.push_back(url(one));
        where_ = fmt::format("{}", fmt::join(urls, ","));
    }
    EtcdAnswer call(const std::string& path, const std::string& body,
                    std::chrono::milliseconds deadline) override;
    const std::string& where() const override { return where_; }

  private:
    static std::string url(const ArrayAddress& one) {
        return (one.tls ? "https://" : "http://") + host_port(one.host, one.port);
    }
    EtcdAnswer ask(const ArrayAddress& server, const std::string& path, const std::string& body,
                   std::chrono::milliseconds time) const;
    static EtcdAnswer read(const Received& response, const std::string& where);
    [[nodiscard]] EtcdAnswer no_answer(httplib::Error failure, const std::string& where,
                                       const TlsVerifier* verifier) const;

    const EtcdServers servers_;
    std::string where_;
    std::size_t first_ = 0;  ///< index of the server that answered last
};

EtcdAnswer HttpEtcdPort::call(const std::string& path, const std::string& body,
                              std::chrono::milliseconds deadline) {
    const auto until = Clock::now() + deadline;
    const std::size_t count = servers_.endpoints.size();
    EtcdAnswer last;
    bool maybe = false;
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t at = (first_ + i) % count;
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
        if (i != 0 && left.count() <= 0) break;
        last = ask(servers_.endpoints[at], path, body, left / static_cast<int>(count - i));
        if (last.fate == EtcdFate::kAnswered || last.fate == EtcdFate::kRefused) {
            first_ = at;
            last.maybe_twice = maybe;
            return last;
        }
        maybe = maybe || last.fate == EtcdFate::kUnknown;
    }
    first_ = (first_ + 1) % count;
    if (maybe) last.fate = EtcdFate::kUnknown;
    return last;
}

EtcdAnswer HttpEtcdPort::ask(const ArrayAddress& server, const std::string& path, const std::string& body,
                             std::chrono::milliseconds time) const {
    // Half of it to connect, half of it for the answer; the parts of a handshake and of an answer follow at once.
    const std::chrono::milliseconds half = std::max(time / 2, std::chrono::milliseconds(50));
    const std::string where = url(server);
    std::unique_ptr<TlsVerifier> verifier;  // outlives the client, which refers to it
    std::unique_ptr<httplib::ClientImpl> client;
    if (server.tls) {
        auto tls = std::make_unique<httplib::SSLClient>(server.host, server.port,
                                                        servers_.certificate.string(), servers_.key.string());
        if (!tls->is_valid())
            return {EtcdFate::kNotSent, "",
                    error(Errc::kInvalidArgument,
                          "the certificate {} and the key {} for etcd cannot be used ({}); they must be PEM "
                          "files that "
                          "belong together",
                          servers_.certificate.string(), servers_.key.string(), openssl_reason())};
        tls->enable_server_certificate_verification(false);  // TlsVerifier does it, in the handshake
        TlsTrust trust{servers_.ca, ""};
        trust.advice = "name its CA with --etcd-ca FILE";
        Result<std::unique_ptr<TlsVerifier>> made =
            TlsVerifier::install(tls->ssl_context(), server.host, server.port, trust, Clock::now() + time);
        if (!made.ok()) return {EtcdFate::kNotSent, "", made.error()};
        verifier = std::move(made).value();
        client = std::move(tls);
    } else {
        client = std::make_unique<httplib::ClientImpl>(server.host, server.port);
    }
    client->set_connection_timeout(half);
    client->set_read_timeout(half);
    client->set_write_timeout(half);
    const NoSigpipe guard;
    ERR_clear_error();
    Received received;
    const httplib::Error failure = post(*client, path, body, Clock::now() + time, received);
    // httplib 0.11 takes the trailers for broken that the gateway sends behind an error, after it has read all of it.
    const bool whole =
        received.status != 0 && received.status != 200 && read_etcd_failure(received.body).code >= 0;
    return failure == httplib::Error::Success || whole ? read(received, where)
                                                       : no_answer(failure, where, verifier.get());
}

EtcdAnswer HttpEtcdPort::read(const Received& response, const std::string& where) {
    const EtcdFailure failure = response.status == 200 ? EtcdFailure{} : read_etcd_failure(response.body);
    if (response.status == 200) return {EtcdFate::kAnswered, response.body};
    if (failure.code < 0)
        return {EtcdFate::kRefused, "",
                error(Errc::kCorrupt,
                      "what answers at {} is not etcd with its v3 JSON gateway (status {}): etcd 3.4 or "
                      "newer is needed",
                      where, response.status)};
    const Errc code = errc_of_grpc(failure.code);
    const EtcdFate fate = code == Errc::kIo ? EtcdFate::kUnknown : EtcdFate::kRefused;
    return {fate, "", error(code, "etcd at {} refused: {}", where, failure.message)};
}

EtcdAnswer HttpEtcdPort::no_answer(httplib::Error failure, const std::string& where,
                                   const TlsVerifier* verifier) const {
    if (verifier != nullptr && !verifier->refusal().empty())
        return {EtcdFate::kNotSent, "", error(Errc::kPermission, "{}", verifier->refusal())};
    const unsigned long tls = verifier != nullptr ? ERR_peek_error() : 0;
    // With TLS 1.3 a server refuses a client's certificate after the client takes the handshake for done.
    const bool refused =
        tls != 0 && ERR_GET_LIB(tls) == ERR_LIB_SSL && ERR_GET_REASON(tls) > SSL_AD_REASON_OFFSET;
    if (refused)
        return {
            EtcdFate::kNotSent, "",
            error(
                Errc::kPermission,
                "etcd at {} refused this gnstord's certificate ({}); give one of its CA with --etcd-cert and "
                "--etcd-key",
                where, openssl_reason())};
    if (failure == httplib::Error::SSLConnection)
        return {EtcdFate::kNotSent, "", error(Errc::kIo, "{}", why_no_handshake(where))};
    const bool sent = failure == httplib::Error::Read || failure == httplib::Error::Write ||
                      failure == httplib::Error::Canceled;
    ERR_clear_error();
    return {sent ? EtcdFate::kUnknown : EtcdFate::kNotSent, "",
            error(Errc::kIo, "etcd does not answer at {} ({}); is it running, and can this machine reach it?",
                  where, httplib::to_string(failure))};
}

}  // namespace

Result<EtcdServers> parse_etcd_servers(std::string_view urls, const std::filesystem::path& ca,
                                       const std::filesystem::path& certificate,
                                       const std::filesystem::path& key) {
    EtcdServers servers{{}, ca, certificate, key};
    while (!urls.empty()) {
        const std::size_t comma = std::min(urls.find(','), urls.size());
        const std::string_view one = urls.substr(0, comma);
        urls.remove_prefix(std::min(comma + 1, urls.size()));
        const Result<ArrayAddress> where = parse_array_address(one);
        if (!where.ok() || !where->socket.empty())
            return error(Errc::kInvalidArgument,
                         "'{}' is not the address of a server of etcd; write https://HOST:PORT or "
                         "http://HOST:PORT (its "
                         "--listen-client-urls), several with commas between them",
                         one);
        servers.endpoints.push_back(*where);
    }
    if (servers.endpoints.empty()) return error(Errc::kInvalidArgument, "no server of etcd is named");
    const bool plain = std::any_of(servers.endpoints.begin(), servers.endpoints.end(),
                                   [](const ArrayAddress& one) { return !one.tls; });
    if (plain && !(ca.empty() && certificate.empty() && key.empty()))
        return error(Errc::kInvalidArgument,
                     "certificates are named for etcd, but a server is http://: write https://");
    if (certificate.empty() != key.empty())
        return error(Errc::kInvalidArgument,
                     "a certificate for etcd needs its key, and a key its certificate");
    return servers;
}

std::unique_ptr<EtcdPort> connect_etcd(EtcdServers servers) {
    return std::make_unique<HttpEtcdPort>(std::move(servers));
}

}  // namespace gnstor::daemon
