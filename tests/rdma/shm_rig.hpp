// shm_rig.hpp: a node that serves shared memory in this process and echoes what it is sent, and clients of
// it.
#pragma once

#include "rdma/nic_fixture.hpp"

#include "rdma/nic/nic_memory.hpp"
#include "rdma/wire/shm/messages.hpp"
#include "rdma/wire/shm/socket.hpp"

#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace gnstor::rdma::test {

/// A node: NIC, sink for messages, server.
class Node {
  public:
    explicit Node(ShmServerOptions server_options = {}, const std::string& name = std::to_string(::getpid()))
        : path(std::filesystem::temp_directory_path() / ("gnstor-shm-" + name)),
          options(std::move(server_options)) {
        reactor_ = must(Reactor::start("node"));
        Reactor* const reactors[] = {reactor_.get()};
        nic = must(SoftNic::open(wire_, "node", {}, reactors));
        door_.answer = [this](const ConnectRequest&) {
            ConnectReply reply;
            reply.accept = true;
            const std::lock_guard lock(mutex_);
            if (sink == nullptr) sinks_.push_back(std::make_unique<Echo>(*nic));
            reply.qp = must(nic->create_offload_queue_pair(sink != nullptr ? *sink : *sinks_.back()));
            queue_pairs_.push_back(reply.qp);
            return reply;
        };
        must(nic->listen(kService, door_));
        start();
    }
    ~Node() {
        server.reset();
        nic->unlisten(kService);
        for (const QpNumber qp : queue_pairs_) must(nic->destroy_queue_pair(qp));
        nic.reset();
    }
    void start() {
        Reactor* const reactors[] = {reactor_.get()};
        ShmServerOptions now = options;
        now.path = path;
        now.node = "node";
        server = must(ShmServer::start(wire_, reactors, now));
    }

    QpNumber last_queue_pair() {
        const std::lock_guard lock(mutex_);
        return queue_pairs_.back();
    }

    const std::filesystem::path path;
    const ShmServerOptions options;
    std::unique_ptr<SoftNic> nic;
    std::unique_ptr<ShmServer> server;
    MessageSink* sink = nullptr;  ///< of messages, in place of the echoes; set before anybody connects

  private:
    /// Answers each message with its first 16 bytes.
    struct Echo : MessageSink {
        explicit Echo(SoftNic& owner) : nic(owner) {}
        void on_message(const InboundMessage& m) override {
            std::array<std::byte, 16> answer{};
            std::memcpy(answer.data(), m.segments[0].data, std::min<std::uint32_t>(m.segments[0].bytes, 16));
            nic.release(m.qp, m.token);
            nic.send(m.qp, answer.data(), answer.size());
        }
        void on_error(QpNumber) override {}
        SoftNic& nic;
    };
    std::unique_ptr<Reactor> reactor_;
    LoopWire wire_;
    Acceptor door_;
    std::mutex mutex_;
    std::vector<std::unique_ptr<Echo>> sinks_;
    std::vector<QpNumber> queue_pairs_;
};

/// A client with one queue pair.
struct Client {
    explicit Client(const std::filesystem::path& path)
        : nic(must(open_shm_nic(path))), cq(*nic, 6), end(*nic, cq) {
        (void)must(nic->connect(end.qpn, "node", kService, {}, 10'000));
    }
    /// One message there and its echo back; whether they agree.
    bool echo(std::uint64_t value) {
        std::memcpy(end.payload.data(), &value, sizeof value);
        if (end.post_and_wait([&](SendTicket& t) { end.send.fill_send(t, end.data(0, 64)); }) !=
            mlx5::kSyndromeNone)
            return false;
        std::vector<Received> all;
        if (!eventually([&] {
                for (Received& r : reap(cq, {&end.receive, 1})) all.push_back(std::move(r));
                return !all.empty();
            }))
            return false;
        return all.size() == 1 && std::memcmp(all[0].message.data(), &value, sizeof value) == 0;
    }
    std::unique_ptr<Nic> nic;
    ReceiveCq cq;
    End end;
};

}  // namespace gnstor::rdma::test
