// etcd_messages.hpp: requests to etcd's v3 JSON gateway and its answers, as far as gnstord uses them. Pure.
//
// The gateway takes keys and values in base64, and 64-bit numbers as strings; members that are zero or empty are absent
// from an answer (etcd 3.4, rpc.swagger.json).
#pragma once

#include <gnstor/base/result.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gnstor::daemon {

inline constexpr char kEtcdTxnPath[] = "/v3/kv/txn";
inline constexpr char kEtcdRangePath[] = "/v3/kv/range";
inline constexpr char kEtcdGrantPath[] = "/v3/lease/grant";
inline constexpr char kEtcdKeepAlivePath[] = "/v3/lease/keepalive";
inline constexpr char kEtcdRevokePath[] = "/v3/lease/revoke";

/// RFC 4648, 4.
[[nodiscard]] std::string to_base64(std::string_view bytes);
[[nodiscard]] std::optional<std::string> from_base64(std::string_view text);  ///< nullopt: it is no base64

struct EtcdKeyValue {
    std::string key, value;
    std::int64_t create_revision = 0, mod_revision = 0, lease = 0;
};

/// A transaction: if all comparisons hold, the changes; else the keys of `otherwise` are read.
struct EtcdTxn {
    struct Compare {
        std::string key;
        bool created;           ///< compares the create revision; else that of the newest change
        std::int64_t revision;  ///< 0: there is no such key
    };
    struct Change {
        std::string key;
        std::optional<std::string> value;  ///< nullopt: deletes the key
        std::int64_t lease = 0;            ///< with which the key ends; 0: it stays
        std::string end{};  ///< of a deletion: of all keys before this one, too; empty: of the one key
    };
    std::vector<Compare> when;
    std::vector<Change> changes;
    std::vector<std::string> otherwise;
};
/// A server refuses more than 128 operations in one transaction (--max-txn-ops); further ones are put into
/// transactions within it, which etcd carries out as part of it.
[[nodiscard]] std::string etcd_txn(const EtcdTxn& txn);

struct EtcdTxnAnswer {
    bool succeeded = false;
    std::int64_t revision = 0;                           ///< of the store afterwards
    std::vector<std::optional<EtcdKeyValue>> otherwise;  ///< in the order of EtcdTxn
};
[[nodiscard]] Result<EtcdTxnAnswer> read_etcd_txn(std::string_view body);

/// Up to `most` keys from `from` on and before `end`. `end` empty: the one key. `revision` 0: the newest.
[[nodiscard]] std::string etcd_range(std::string_view from, std::string_view end, std::int64_t revision,
                                     unsigned most);
struct EtcdRangeAnswer {
    std::int64_t revision = 0;
    std::vector<EtcdKeyValue> found;
    bool more = false;
};
[[nodiscard]] Result<EtcdRangeAnswer> read_etcd_range(std::string_view body);
/// The first key behind all that begin with `prefix`.
[[nodiscard]] std::string etcd_end_of(std::string prefix);

struct EtcdLease {
    std::int64_t id = 0;
    std::int64_t ttl_s = 0;  ///< 0: it has ended
};
[[nodiscard]] std::string etcd_lease_grant(std::int64_t ttl_s);
[[nodiscard]] std::string etcd_lease_of(std::int64_t id);  ///< to keep it alive, or to revoke it
[[nodiscard]] Result<EtcdLease> read_etcd_lease(std::string_view body);
[[nodiscard]] Result<EtcdLease> read_etcd_keep_alive(std::string_view body);

/// The status of gRPC in the answer to a request that failed, and its message; code -1: the answer is not etcd's.
struct EtcdFailure {
    int code = -1;
    std::string message;
};
[[nodiscard]] EtcdFailure read_etcd_failure(std::string_view body);

}  // namespace gnstor::daemon
