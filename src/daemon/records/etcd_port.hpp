// etcd_port.hpp: how a store and an election reach etcd: requests of its v3 JSON gateway, and what became of them.
#pragma once

#include <gnstor/base/result.hpp>

#include <chrono>
#include <string>

namespace gnstor::daemon {

enum class EtcdFate {
    kAnswered,  ///< carried out; `body` is the answer
    kRefused,   ///< etcd refused it, and changed nothing
    kNotSent,   ///< no server of etcd was reached: nothing changed
    kUnknown,   ///< it was sent, and may be carried out at any time from then on
};

struct EtcdAnswer {
    EtcdFate fate = EtcdFate::kNotSent;
    std::string body{};
    Error trouble{Errc::kIo, ""};  ///< unless answered: why, and what to do
    /// An earlier attempt of the same request, at another server, may have been carried out.
    bool maybe_twice = false;
};

/// One thread at a time.
class EtcdPort {
  public:
    virtual ~EtcdPort() = default;
    /// POST of `body` (JSON) to `path`, as /v3/kv/txn. A server that does not answer is followed by the next one, within
    /// `deadline` for all: the request must bear being carried out twice.
    virtual EtcdAnswer call(const std::string& path, const std::string& body,
                            std::chrono::milliseconds deadline) = 0;
    /// For messages: the servers.
    [[nodiscard]] virtual const std::string& where() const = 0;
};

}  // namespace gnstor::daemon
