// fake_etcd.hpp: an etcd in this process, as far as gnstord uses it, with faults: requests that are lost, that are carried
// out and their answer lost, and that are delayed. One thread at a time.
#pragma once

#include "daemon/records/etcd_messages.hpp"
#include "daemon/records/etcd_port.hpp"
#include "daemon/records/etcd_store.hpp"

#include <nlohmann/json.hpp>

#include <functional>
#include <map>
#include <set>
#include <vector>

namespace gnstor::daemon::test {

enum class Loss {
    kNone,
    kNotSent,  ///< no server is reached
    kAnswer,   ///< carried out, and the answer is lost
    kDelayed,  ///< nobody knows, until deliver_late()
    kTwice,    ///< the answer of one server is lost, and the next one is asked
    kRefused,  ///< as on a full disk
};

/// The data, which several ports may share.
class FakeEtcd {
  public:
    std::map<std::string, EtcdKeyValue> keys;
    std::int64_t revision = 1;
    std::uint64_t now_ms = 0;
    std::uint64_t requests = 0;
    std::size_t ops_most = 0;  ///< of one level of a transaction

    std::string carry_out(const std::string& path, const std::string& body) {
        ++requests;
        const auto request = nlohmann::json::parse(body);
        expire();
        if (path == kEtcdTxnPath) return txn(request).dump();
        if (path == kEtcdRangePath) return range(request).dump();
        if (path == kEtcdGrantPath) {
            const auto id = static_cast<std::int64_t>(++leases_made_);
            const std::uint64_t ttl_ms = 1000 * std::stoull(request.at("TTL").get<std::string>());
            leases_[id] = {now_ms + ttl_ms, ttl_ms};
            return nlohmann::json{
                {"header", header()}, {"ID", std::to_string(id)}, {"TTL", request.at("TTL")}}
                .dump();
        }
        const std::int64_t id = std::stoll(request.at("ID").get<std::string>());
        if (path == kEtcdRevokePath) {
            end_lease(id);
            return nlohmann::json{{"header", header()}}.dump();
        }
        nlohmann::json result{{"header", header()}, {"ID", std::to_string(id)}};
        if (const auto lease = leases_.find(id); lease != leases_.end()) {
            lease->second.ends_ms = now_ms + lease->second.ttl_ms;
            result["TTL"] = std::to_string(lease->second.ttl_ms / 1000);
        }
        return nlohmann::json{{"result", result}}.dump();
    }
    void end_lease(std::int64_t id) {
        leases_.erase(id);
        if (std::erase_if(keys, [id](const auto& kv) { return kv.second.lease == id; }) != 0) ++revision;
    }

  private:
    struct Lease {
        std::uint64_t ends_ms, ttl_ms;
    };
    static std::string plain(const nlohmann::json& of, const char* name) {
        return of.contains(name) ? from_base64(of.at(name).get<std::string>()).value() : std::string();
    }
    [[nodiscard]] nlohmann::json header() const { return {{"revision", std::to_string(revision)}}; }
    void expire() {
        std::vector<std::int64_t> ended;
        for (const auto& [id, lease] : leases_)
            if (lease.ends_ms <= now_ms) ended.push_back(id);
        for (const std::int64_t id : ended) end_lease(id);
    }
    static nlohmann::json to_json(const EtcdKeyValue& kv) {
        nlohmann::json out{{"key", to_base64(kv.key)},
                           {"value", to_base64(kv.value)},
                           {"create_revision", std::to_string(kv.create_revision)},
                           {"mod_revision", std::to_string(kv.mod_revision)}};
        if (kv.lease != 0) out["lease"] = std::to_string(kv.lease);
        return out;
    }
    nlohmann::json range(const nlohmann::json& request) {
        const std::string from = plain(request, "key"), end = plain(request, "range_end");
        const std::size_t most =
            request.contains("limit") ? std::stoull(request.at("limit").get<std::string>()) : 1000;
        nlohmann::json kvs = nlohmann::json::array();
        bool more = false;
        for (auto at = keys.lower_bound(from); at != keys.end(); ++at) {
            if (end.empty() ? at->first != from : at->first >= end) break;
            if (more = kvs.size() == most; more) break;
            kvs.push_back(to_json(at->second));
        }
        nlohmann::json out{{"header", header()}, {"kvs", kvs}};
        if (more) out["more"] = true;
        return out;
    }
    bool holds(const nlohmann::json& compare) const {
        const auto found = keys.find(plain(compare, "key"));
        const bool created = compare.at("target") == "CREATE";
        const std::int64_t is = found == keys.end() ? 0
                                : created           ? found->second.create_revision
                                                    : found->second.mod_revision;
        return is == std::stoll(compare.at(created ? "create_revision" : "mod_revision").get<std::string>());
    }
    void change(const nlohmann::json& operations) {
        ops_most = std::max(ops_most, operations.size());
        for (const nlohmann::json& operation : operations) {
            if (operation.contains("request_txn")) {
                change(operation.at("request_txn").at("success"));
            } else if (operation.contains("request_delete_range")) {
                const nlohmann::json& gone = operation.at("request_delete_range");
                const auto from = keys.lower_bound(plain(gone, "key"));
                const std::string end = plain(gone, "range_end");
                if (end.empty())
                    keys.erase(plain(gone, "key"));
                else
                    keys.erase(from, keys.lower_bound(end));
            } else {
                const nlohmann::json& put = operation.at("request_put");
                EtcdKeyValue& kv = keys[plain(put, "key")];
                kv.key = plain(put, "key");
                kv.value = plain(put, "value");
                kv.mod_revision = revision;
                if (kv.create_revision == 0) kv.create_revision = revision;
                kv.lease = put.contains("lease") ? std::stoll(put.at("lease").get<std::string>()) : 0;
            }
        }
    }
    nlohmann::json txn(const nlohmann::json& request) {
        bool all = true;
        for (const nlohmann::json& compare : request.at("compare")) all = all && holds(compare);
        if (all) {
            ++revision;
            change(request.at("success"));
            return {{"header", header()}, {"succeeded", true}};
        }
        nlohmann::json responses = nlohmann::json::array();
        for (const nlohmann::json& operation : request.at("failure"))
            responses.push_back({{"response_range", range(operation.at("request_range"))}});
        return {{"header", header()}, {"responses", responses}};
    }

    std::uint64_t leases_made_ = 100;
    std::map<std::int64_t, Lease> leases_;
};

class FakePort final : public EtcdPort {
  public:
    explicit FakePort(FakeEtcd& etcd) : etcd_(etcd) {}
    std::function<Loss()> loss;  ///< of the next request; may be empty

    EtcdAnswer call(const std::string& path, const std::string& body, std::chrono::milliseconds) override {
        const Loss now = loss ? loss() : Loss::kNone;
        if (now == Loss::kNotSent) return {EtcdFate::kNotSent, "", error(Errc::kIo, "etcd does not answer")};
        if (now == Loss::kRefused) return {EtcdFate::kRefused, "", error(Errc::kNoSpace, "etcd is full")};
        if (now == Loss::kDelayed) late_.emplace_back(path, body);
        if (now == Loss::kAnswer || now == Loss::kTwice) (void)etcd_.carry_out(path, body);
        if (now == Loss::kDelayed || now == Loss::kAnswer)
            return {EtcdFate::kUnknown, "", error(Errc::kIo, "the answer is lost")};
        return {EtcdFate::kAnswered, etcd_.carry_out(path, body), error(Errc::kIo, ""), now == Loss::kTwice};
    }
    const std::string& where() const override { return where_; }
    void deliver_late() {
        for (const auto& [path, body] : std::exchange(late_, {})) (void)etcd_.carry_out(path, body);
    }

  private:
    FakeEtcd& etcd_;
    const std::string where_ = "http://fake:2379";
    std::vector<std::pair<std::string, std::string>> late_;
};

/// A leadership that a test begins and ends.
class TestLeadership final : public Leadership {
  public:
    TestLeadership(FakeEtcd& etcd, const std::string& prefix) {
        EtcdTxn txn;
        txn.changes.push_back({leader_key(prefix), "test"});
        (void)etcd.carry_out(kEtcdTxnPath, etcd_txn(txn));
        revision_ = etcd.keys.at(leader_key(prefix)).create_revision;
    }
    Result<void> known = {};
    bool ended = false;
    std::int64_t revision() const override { return revision_; }
    Result<void> check() const override {
        if (ended) return error(Errc::kState, "it has ended");
        return known;
    }
    void end() override { ended = true; }

  private:
    std::int64_t revision_ = 0;
};

}  // namespace gnstor::daemon::test
