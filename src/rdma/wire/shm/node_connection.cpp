// node_connection.cpp: see node_connection.hpp.
#include "rdma/wire/shm/node_connection.hpp"

#include <unistd.h>

#include <gnstor/base/log.hpp>
#include <gnstor/simt/time.hpp>

#include <poll.h>

#include <algorithm>

namespace gnstor::rdma::shm {
namespace {

/// Time that the node may need for a call in addition to the request's own timeout: it may wait for
/// drives.
constexpr std::uint32_t kPatienceMs = 20'000;
/// Time for the first answer, for which the node waits for nothing: a node that hangs fails connect()
/// soon.
constexpr std::uint32_t kHelloMs = 5'000;
/// How long a state is cached: callers that wait for a change ask in a loop.
constexpr std::uint64_t kStateFreshNs = 2'000'000;

std::uint64_t address_of(const void* pointer) {
    return reinterpret_cast<std::uint64_t>(pointer);
}

std::span<const std::byte> bytes_of(const Request& request) {
    return std::as_bytes(std::span(&request, 1));
}

}  // namespace

Result<std::unique_ptr<NodeConnection>> NodeConnection::connect(const std::string& path,
                                                                std::optional<pid_t> server) {
    GN_ASSIGN(Socket socket, Socket::connect(path));
    if (server && socket.peer() != *server)
        return error(
            Errc::kPermission,
            "cannot connect to the node at {1}: process {0} listens there, but the node is process {2}",
            socket.peer(), path, *server);
    // Found by its address, which any user may take while the node is down: it will see all that this process
    // puts into shared memory.
    if (server) {
        GN_ASSIGN(const std::uint32_t user, socket.peer_user());
        if (user != 0 && user != ::geteuid())
            return error(Errc::kPermission,
                         "the process at {} is of user {}, who is neither root nor the user of this process; "
                         "this process shares no memory with it",
                         path, user);
    }
    std::unique_ptr<NodeConnection> client(new NodeConnection(std::move(socket), path));
    GN_TRY(client->call(Request{}, -1, kHelloMs));
    return client;
}

Result<Answer> NodeConnection::call(const Request& request, int file) {
    return call(request, file, kPatienceMs);
}

Result<Answer> NodeConnection::call(const Request& request, int file, std::uint32_t patience_ms) {
    const std::lock_guard lock(mutex_);
    if (request.kind != Kind::kState) states_.clear();  // a call may change any state
    if (gone_) return error(Errc::kIo, "the node at {} has ended; connect to it again", address_);
    Answer answer;
    Result<void> done = socket_.send(bytes_of(request), file);
    if (done.ok())
        done =
            socket_.receive(std::as_writable_bytes(std::span(&answer, 1)), request.timeout_ms + patience_ms);
    if (!done.ok()) {
        // A late answer would be taken for the answer of the next call.
        gone_ = true;
        socket_.stop_sending();
        return error(done.error().code == Errc::kTimedOut ? Errc::kTimedOut : Errc::kIo,
                     "the request to the node at {} failed: {}", address_, done.error().message);
    }
    if (answer.magic != kMagic)
        return error(Errc::kUnsupported,
                     "the process at {} does not speak the shm wire of GNStor; check the address: it must be "
                     "that of a node",
                     address_);
    if (answer.version != kVersion)
        return error(Errc::kUnsupported,
                     "the node at {} speaks version {} of the shm wire, this program speaks version {}; use "
                     "the same version of gnstor for both",
                     address_, answer.version, kVersion);
    if (answer.failure < 0) return answer;
    answer.text.back() = 0;
    return Error{static_cast<Errc>(answer.failure), answer.text.data()};
}

Result<void> NodeConnection::give_back(const Request& request) {
    const auto done = call(request);
    if (done.ok()) return {};
    const std::lock_guard lock(mutex_);
    if (gone_ && !awaited_) await_end();
    if (ended_) return {};
    return done.error();
}

bool NodeConnection::hung_up() const {
    pollfd end{.fd = socket_.fd(), .events = 0, .revents = 0};
    return ::poll(&end, 1, 0) == 1;
}

bool NodeConnection::gone() {
    const std::lock_guard lock(mutex_);
    return gone_;
}

bool NodeConnection::ended() {
    const std::lock_guard lock(mutex_);
    if (gone_ && !awaited_) await_end();
    return ended_;
}

// The node closes its socket when it no longer touches our memory. Late answers are discarded.
void NodeConnection::await_end() {
    awaited_ = true;
    Answer late;
    Result<void> got;
    do {
        got = socket_.receive(std::as_writable_bytes(std::span(&late, 1)), kPatienceMs);
    } while (got.ok());
    ended_ = got.error().code == Errc::kIo;
}

Result<void> NodeConnection::share(void* base, std::size_t bytes, int file, std::size_t offset) {
    if (file < 0)
        return error(Errc::kInvalidArgument,
                     "cannot share {} bytes at {} with a node: the memory has no file behind it; allocate it "
                     "with PinnedOptions::shareable",
                     bytes, base);
    Request request;
    request.kind = Kind::kShare;
    request.address = address_of(base);
    request.bytes = bytes;
    request.offset = offset;
    GN_TRY(call(request, file));
    return {};
}

Result<void> NodeConnection::unshare(void* base) {
    Request request;
    request.kind = Kind::kUnshare;
    request.address = address_of(base);
    return give_back(request);
}

Result<MemoryKeys> NodeConnection::register_memory_as(std::uint32_t key, void* base, std::size_t bytes,
                                                      std::uint32_t access) {
    Request request;
    request.kind = Kind::kRegister;
    request.address = address_of(base);
    request.bytes = bytes;
    request.access = access;
    request.number = key;
    GN_ASSIGN(const Answer answer, call(request));
    return MemoryKeys{answer.value, answer.second};
}

Result<void> NodeConnection::deregister_memory(MemoryKeys keys) {
    Request request;
    request.kind = Kind::kDeregister;
    request.number = keys.lkey;
    request.rkey = keys.rkey;
    return give_back(request);
}

Result<CqNumber> NodeConnection::create_ring(const CompletionQueueConfig& config) {
    Request request;
    request.kind = Kind::kCreateRing;
    request.address = address_of(config.ring);
    request.entries = config.entries;
    request.record = address_of(config.consumer_record);
    request.tickets = address_of(config.tickets);
    request.collapsed = config.collapsed ? 1 : 0;
    request.use = static_cast<std::uint32_t>(config.use);
    GN_ASSIGN(const Answer answer, call(request));
    return answer.value;
}

Result<void> NodeConnection::destroy_ring(CqNumber cq) {
    Request request;
    request.kind = Kind::kDestroyRing;
    request.number = cq;
    return give_back(request);
}

Result<QpNumber> NodeConnection::create_queue_pair(const QueuePairConfig& config) {
    Request request;
    request.kind = Kind::kCreateQueuePair;
    request.address = address_of(config.send_ring);
    request.entries = config.send_entries;
    request.receive_ring = address_of(config.receive_ring);
    request.receive_entries = config.receive_entries;
    request.record = address_of(config.doorbell_record);
    request.bell = address_of(config.bell);
    request.send_cq = config.send_cq;
    request.receive_cq = config.receive_cq;
    request.scatter_to_cqe = config.scatter_to_cqe ? 1 : 0;
    request.number = config.number;
    GN_ASSIGN(const Answer answer, call(request));
    return answer.value;
}

Result<void> NodeConnection::destroy_queue_pair(QpNumber qp) {
    Request request;
    request.kind = Kind::kDestroyQueuePair;
    request.number = qp;
    return give_back(request);
}

Result<void> NodeConnection::reset(QpNumber qp) {
    Request request;
    request.kind = Kind::kReset;
    request.number = qp;
    GN_TRY(call(request));
    return {};
}

Result<std::vector<std::byte>> NodeConnection::connect_queue_pair(QpNumber qp,
                                                                  const std::string& /*peer_address*/,
                                                                  const std::string& service,
                                                                  std::span<const std::byte> private_data,
                                                                  std::uint32_t timeout_ms) {
    Request request;
    if (service.size() >= request.service.size() || private_data.size() > kPrivateBytesMax)
        return error(Errc::kInvalidArgument,
                     "cannot connect: service '{}' or {} bytes of private data are too long", service,
                     private_data.size());
    request.kind = Kind::kConnect;
    request.number = qp;
    request.timeout_ms = std::min(timeout_ms, kConnectMsMax);
    std::copy(service.begin(), service.end(), request.service.begin());
    std::copy(private_data.begin(), private_data.end(), request.private_data.begin());
    request.private_bytes = static_cast<std::uint16_t>(private_data.size());
    GN_ASSIGN(const Answer answer, call(request));
    const std::size_t bytes = std::min<std::size_t>(answer.private_bytes, kPrivateBytesMax);
    return std::vector<std::byte>(answer.private_data.begin(),
                                  answer.private_data.begin() + static_cast<std::ptrdiff_t>(bytes));
}

void NodeConnection::disconnect(QpNumber qp) {
    Request request;
    request.kind = Kind::kDisconnect;
    request.number = qp;
    // If the node is gone, its queue pairs went to error (Nodes::bury).
    if (const auto done = call(request); !done.ok() && (done.error().code == Errc::kTimedOut || !gone()))
        log_warn("rdma: queue pair {:#x} was not disconnected: {}", qp, done.error().message);
}

QpState NodeConnection::state(QpNumber qp) {
    const std::uint64_t now = simt::now_ns();
    {
        const std::lock_guard lock(mutex_);
        const auto known = states_.find(qp);
        if (known != states_.end() && now < known->second.until_ns) return known->second.state;
    }
    Request request;
    request.kind = Kind::kState;
    request.number = qp;
    const auto answer = call(request);
    const QpState state = answer.ok() ? static_cast<QpState>(answer->value) : QpState::kError;
    const std::lock_guard lock(mutex_);
    states_[qp] = {state, now + kStateFreshNs};
    return state;
}

NicCounters NodeConnection::counters() {
    Request request;
    request.kind = Kind::kCounters;
    const auto answer = call(request);
    return answer.ok() ? answer->counters : NicCounters{};
}

void NodeConnection::keep(std::shared_ptr<void> memory) {
    const std::lock_guard lock(mutex_);
    kept_.push_back(std::move(memory));
}

}  // namespace gnstor::rdma::shm
