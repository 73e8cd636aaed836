#include "daemon/records/etcd_messages.hpp"

#include <nlohmann/json.hpp>

#include <array>
#include <charconv>

namespace gnstor::daemon {
namespace {

using nlohmann::json;

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Thrown within this file alone: an answer that is not as etcd's are.
struct NotEtcd {};

/// A 64-bit number, which is a string, or absent if it is 0.
std::int64_t number(const json& of, const char* name) {
    const auto found = of.find(name);
    if (found == of.end()) return 0;
    if (found->is_number_integer()) return found->get<std::int64_t>();
    const auto& text = found->get_ref<const std::string&>();
    std::int64_t value = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failed != std::errc() || end != text.data() + text.size()) throw NotEtcd();
    return value;
}

std::string bytes(const json& of, const char* name) {
    const auto found = of.find(name);
    if (found == of.end()) return {};
    std::optional<std::string> plain = from_base64(found->get_ref<const std::string&>());
    if (!plain) throw NotEtcd();
    return std::move(*plain);
}

EtcdKeyValue key_value(const json& kv) {
    return {bytes(kv, "key"), bytes(kv, "value"), number(kv, "create_revision"), number(kv, "mod_revision"),
            number(kv, "lease")};
}

/// `read` gets the parsed text; what it throws makes kCorrupt.
template <class Read>
auto read_answer(std::string_view body, Read read) -> Result<decltype(read(json()))> {
    try {
        return read(json::parse(body));
    } catch (const json::exception&) {
    } catch (const NotEtcd&) {
    }
    return error(Errc::kCorrupt, "it is not an answer of etcd's v3 API: {}", body.substr(0, 200));
}

std::string text_of(std::int64_t value) {
    return std::to_string(value);
}

/// At most as many operations in each of three levels of transactions: etcd adds the levels up.
constexpr std::size_t kOperationsOfLevel = 40;

json nested(json operations) {
    while (operations.size() > kOperationsOfLevel) {
        json outer = json::array();
        for (std::size_t i = 0; i < operations.size(); i += kOperationsOfLevel) {
            json inner = json::array();
            for (std::size_t k = i; k < std::min(operations.size(), i + kOperationsOfLevel); ++k)
                inner.push_back(std::move(operations[k]));
            outer.push_back({{"request_txn", {{"success", std::move(inner)}}}});
        }
        operations = std::move(outer);
    }
    return operations;
}

}  // namespace

std::string to_base64(std::string_view bytes) {
    std::string out;
    out.reserve((bytes.size() + 2) / 3 * 4);
    for (std::size_t i = 0; i < bytes.size(); i += 3) {
        std::uint32_t group = 0;
        for (std::size_t k = 0; k < 3; ++k)
            group = group << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
        for (std::size_t k = 0; k < 4; ++k)
            out += i + k <= bytes.size() ? kDigits[group >> (18 - 6 * k) & 63] : '=';
    }
    return out;
}

std::optional<std::string> from_base64(std::string_view text) {
    if (text.size() % 4 != 0) return std::nullopt;
    while (!text.empty() && text.back() == '=') text.remove_suffix(1);
    std::string out;
    std::uint32_t bits = 0, held = 0;
    for (const char c : text) {
        const std::size_t digit = kDigits.find(c);
        if (digit == std::string_view::npos) return std::nullopt;
        bits = bits << 6 | static_cast<std::uint32_t>(digit);
        held += 6;
        if (held < 8) continue;
        held -= 8;
        out += static_cast<char>(bits >> held & 0xFF);
    }
    return out;
}

std::string etcd_txn(const EtcdTxn& txn) {
    json compare = json::array(), success = json::array(), failure = json::array();
    for (const EtcdTxn::Compare& one : txn.when)
        compare.push_back({{"key", to_base64(one.key)},
                           {"result", "EQUAL"},
                           {"target", one.created ? "CREATE" : "MOD"},
                           {one.created ? "create_revision" : "mod_revision", text_of(one.revision)}});
    for (const EtcdTxn::Change& one : txn.changes) {
        json operation{{"key", to_base64(one.key)}};
        if (one.value) operation["value"] = to_base64(*one.value);
        if (!one.end.empty()) operation["range_end"] = to_base64(one.end);
        if (one.lease != 0) operation["lease"] = text_of(one.lease);
        success.push_back({{one.value ? "request_put" : "request_delete_range", std::move(operation)}});
    }
    for (const std::string& key : txn.otherwise)
        failure.push_back({{"request_range", {{"key", to_base64(key)}}}});
    return json{{"compare", std::move(compare)},
                {"success", nested(std::move(success))},
                {"failure", std::move(failure)}}
        .dump();
}

Result<EtcdTxnAnswer> read_etcd_txn(std::string_view body) {
    return read_answer(body, [](const json& answer) {
        EtcdTxnAnswer out;
        out.succeeded = answer.value("succeeded", false);
        out.revision = number(answer.at("header"), "revision");
        if (out.succeeded || !answer.contains("responses")) return out;
        for (const json& response : answer.at("responses")) {
            const json& range = response.at("response_range");
            out.otherwise.emplace_back();
            if (range.contains("kvs") && !range.at("kvs").empty())
                out.otherwise.back() = key_value(range.at("kvs").at(0));
        }
        return out;
    });
}

std::string etcd_range(std::string_view from, std::string_view end, std::int64_t revision, unsigned most) {
    json range{{"key", to_base64(from)}, {"limit", text_of(most)}};
    if (!end.empty()) range["range_end"] = to_base64(end);
    if (revision != 0) range["revision"] = text_of(revision);
    return range.dump();
}

Result<EtcdRangeAnswer> read_etcd_range(std::string_view body) {
    return read_answer(body, [](const json& answer) {
        EtcdRangeAnswer out;
        out.revision = number(answer.at("header"), "revision");
        out.more = answer.value("more", false);
        if (answer.contains("kvs"))
            for (const json& kv : answer.at("kvs")) out.found.push_back(key_value(kv));
        return out;
    });
}

std::string etcd_end_of(std::string prefix) {
    while (!prefix.empty() && static_cast<unsigned char>(prefix.back()) == 0xFF) prefix.pop_back();
    if (!prefix.empty()) ++prefix.back();
    return prefix;
}

std::string etcd_lease_grant(std::int64_t ttl_s) {
    return json{{"TTL", text_of(ttl_s)}}.dump();
}

std::string etcd_lease_of(std::int64_t id) {
    return json{{"ID", text_of(id)}}.dump();
}

Result<EtcdLease> read_etcd_lease(std::string_view body) {
    return read_answer(body, [](const json& answer) {
        (void)answer.at("header");
        const EtcdLease lease{number(answer, "ID"), number(answer, "TTL")};
        if (lease.id == 0 || lease.ttl_s <= 0)
            throw json::other_error::create(501, "it is no lease", nullptr);
        return lease;
    });
}

Result<EtcdLease> read_etcd_keep_alive(std::string_view body) {
    return read_answer(body, [](const json& answer) {
        const json& result = answer.at("result");
        return EtcdLease{number(result, "ID"), number(result, "TTL")};
    });
}

EtcdFailure read_etcd_failure(std::string_view body) {
    try {
        json answer = json::parse(body);
        if (answer.contains("error") && answer.at("error").is_object())
            answer = json(answer.at("error"));  // of a stream
        const char* const name = answer.contains("code") ? "code" : "grpc_code";
        return {answer.at(name).get<int>(), answer.value("message", std::string())};
    } catch (const json::exception&) {
        return {};
    }
}

}  // namespace gnstor::daemon
