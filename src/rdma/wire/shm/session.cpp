// session.cpp: see session.hpp.
#include "rdma/wire/shm/session.hpp"

#include <gnstor/base/log.hpp>
#include <gnstor/base/units.hpp>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

namespace gnstor::rdma::shm {
namespace {

constexpr std::uint32_t kTickMs = 200;        // how soon `stop` is noticed
constexpr std::uint32_t kGiveBackTryMs = 20;  // of one attempt to destroy one queue pair

}  // namespace

Session::Session(Socket socket, std::unique_ptr<SoftNic> nic, Shares& shares, const ShmServerOptions& options)
    : socket_(std::make_shared<const Socket>(std::move(socket))),
      nic_(std::move(nic)),
      node_(options.node),
      give_back_(options.give_back_ms),
      end_(options.end_ms),
      has_queue_pairs_(shares.queue_pairs),
      has_completion_queues_(shares.completion_queues),
      has_send_entries_(shares.send_entries),
      has_blocks_(shares.blocks),
      has_bytes_(shares.bytes) {}

Session::~Session() = default;

/// The NIC no longer touches the client's memory.
void Session::close() {
    nic_.reset();
    for (const auto& [address, block] : blocks_) ::munmap(block.here, block.bytes);
    blocks_.clear();
    for (Portion* part : portions_) part->give(part->held());
    socket_->shut_down();
}

void Session::run(const Request& first, Descriptor file, const std::atomic<bool>& stop) {
    bool going = answer(first, std::move(file));
    // Acquire: pairs with ~ShmServer; orders no other data.
    while (going && !stop.load(std::memory_order_acquire)) {
        Request request;
        Descriptor came;
        const auto got = socket_->receive(std::as_writable_bytes(std::span(&request, 1)), kTickMs, &came);
        if (!got.ok() && got.error().code == Errc::kTimedOut) continue;
        going = got.ok() && answer(request, std::move(came));
    }
    socket_->stop_receiving();
    give_all_back(stop);
}

/// False: ends the session, as the request is not of this protocol, or the client does not receive
/// answers.
bool Session::answer(const Request& request, Descriptor file) {
    if (request.magic != kMagic) return false;
    const Answer answer = serve(request, std::move(file));
    return socket_->send(std::as_bytes(std::span(&answer, 1))).ok();
}

void Session::give_all_back(const std::atomic<bool>& stop) {
    using Clock = std::chrono::steady_clock;
    // Disconnect all first, so that drives release them in parallel, not one after the other.
    for (const auto& [number, users] : queue_pairs_) nic_->disconnect(number);
    auto until = Clock::now() + give_back_;
    bool hurried = false;
    do {
        if (!hurried && stop.load(std::memory_order_acquire)) {
            hurried = true;
            until = std::min(until, Clock::now() + end_);
        }
        if (give_back(until)) return close();
    } while (Clock::now() < until);
    abandon();
}

/// Drives may still touch the memory, so it stays mapped as long as the process, and the socket stays
/// open, so that the client does not reuse it. No engine looks at the NIC any more.
void Session::abandon() {
    log_error(
        "rdma: {}: the session of a client has ended, but drives have not finished the commands that use its "
        "memory; {} of it stay mapped until this process ends",
        nic_->address(), format_bytes(has_bytes_.held()));
    nic_->keep(std::const_pointer_cast<Socket>(socket_));
    SoftNic::abandon(std::move(nic_));
    blocks_.clear();
    for (Portion* part : portions_) part->forfeit();
    abandoned_ = true;
}

bool Session::give_back(std::chrono::steady_clock::time_point until) {
    const auto drop = [until](std::map<std::uint32_t, Users>& owners, auto&& destroy) {
        std::erase_if(owners, [&](const auto& owner) {
            return std::chrono::steady_clock::now() < until && destroy(owner.first).ok();
        });
        return owners.empty();
    };
    // In this order: the NIC refuses to destroy rings and regions that a queue pair uses.
    return drop(queue_pairs_, [&](std::uint32_t n) { return nic_->destroy_queue_pair(n, kGiveBackTryMs); }) &&
           drop(rings_, [&](std::uint32_t n) { return nic_->destroy_completion_queue(n); }) &&
           drop(regions_, [&](std::uint32_t n) {
               return nic_->deregister_memory({n, n});
           });
}

Answer Session::serve(const Request& request, Descriptor file) {
    Answer answer;
    Result<void> done = error(Errc::kUnsupported, "this node speaks version {} of the shm wire, not {}",
                              kVersion, request.version);
    if (request.version == kVersion) done = act(request, std::move(file), answer);
    return done.ok() ? answer : refusal(done.error());
}

Result<void> Session::act(const Request& request, Descriptor file, Answer& answer) {
    const std::uint32_t number = request.number;
    switch (request.kind) {
        case Kind::kHello:
            return {};
        case Kind::kShare:
            return share(request, file);
        case Kind::kUnshare:
            return unshare(request);
        case Kind::kRegister:
            return register_memory(request, answer);
        case Kind::kDeregister:
            GN_TRY(nic_->deregister_memory({number, request.rkey}));
            unuse(regions_, number);
            return {};
        case Kind::kCreateRing:
            return create_ring(request, answer);
        case Kind::kDestroyRing:
            GN_TRY(nic_->destroy_completion_queue(number));
            unuse(rings_, number);
            has_completion_queues_.give(1);
            return {};
        case Kind::kCreateQueuePair:
            return create_queue_pair(request, answer);
        case Kind::kDestroyQueuePair:
            GN_TRY(nic_->destroy_queue_pair(number));
            unuse(queue_pairs_, number);
            has_queue_pairs_.give(1);
            has_send_entries_.give(send_entries_[number]);
            send_entries_.erase(number);
            return {};
        case Kind::kReset:
            return nic_->reset_queue_pair(number);
        case Kind::kConnect:
            return connect(request, answer);
        case Kind::kDisconnect:
            nic_->disconnect(number);
            return {};
        case Kind::kState:
            answer.value = static_cast<std::uint32_t>(nic_->state(number));
            return {};
        case Kind::kCounters:
            answer.counters = nic_->counters();
            return {};
    }
    return error(Errc::kUnsupported, "the shm wire has no request of kind {}",
                 static_cast<unsigned>(request.kind));
}

Result<void> Session::share(const Request& r, const Descriptor& file) {
    if (file.get() < 0)
        return error(Errc::kInvalidArgument,
                     "cannot share memory: the request came without a file descriptor");
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    if (r.bytes == 0 || r.bytes % page != 0 || r.address % page != 0 || r.offset % page != 0 ||
        r.address + r.bytes < r.address)
        return error(Errc::kInvalidArgument, "cannot share {} bytes at {:#x}: give whole pages", r.bytes,
                     r.address);
    const auto after = blocks_.lower_bound(r.address);
    if ((after != blocks_.end() && after->first < r.address + r.bytes) ||
        (after != blocks_.begin() &&
         std::prev(after)->second.address + std::prev(after)->second.bytes > r.address))
        return error(Errc::kExists, "cannot share {} bytes at {:#x}: a part of that range is shared already",
                     r.bytes, r.address);
    // The client could shrink an unsealed file: the next access would kill this process (SIGBUS). Huge
    // pages are refused for the same reason: the client can punch holes, and no page may be left to fill
    // them.
    struct stat what {};
    struct statfs where {};
    if (::fstatfs(file.get(), &where) != 0)
        return error(Errc::kIo, "cannot share memory: the file system of its file cannot be examined: {}",
                     std::strerror(errno));
    if (where.f_type == HUGETLBFS_MAGIC)
        return error(Errc::kPermission,
                     "cannot share memory: its file must have ordinary pages, not huge pages");
    const int seals = ::fcntl(file.get(), F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
        return error(Errc::kPermission,
                     "cannot share memory: its file must be sealed against shrinking (F_SEAL_SHRINK)");
    if (::fstat(file.get(), &what) != 0 || what.st_size < 0 ||
        static_cast<std::uint64_t>(what.st_size) < r.offset ||
        static_cast<std::uint64_t>(what.st_size) - r.offset < r.bytes)
        return error(Errc::kInvalidArgument, "cannot share memory: its file is shorter than {} bytes",
                     r.offset + r.bytes);
    GN_TRY(has_blocks_.take(1));
    auto done = has_bytes_.take(r.bytes);
    void* at = MAP_FAILED;
    if (done.ok()) {
        at = ::mmap(nullptr, r.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(),
                    static_cast<off_t>(r.offset));
        if (at == MAP_FAILED) {
            done = error(Errc::kNoSpace, "cannot share memory: this node cannot map {}: {}",
                         format_bytes(r.bytes), std::strerror(errno));
            has_bytes_.give(r.bytes);
        }
    }
    if (!done.ok()) {
        has_blocks_.give(1);
        return done;
    }
    blocks_[r.address] = {r.address, r.bytes, static_cast<std::byte*>(at), 0};
    return {};
}

Result<void> Session::unshare(const Request& r) {
    const auto at = blocks_.find(r.address);
    if (at == blocks_.end())
        return error(Errc::kNotFound,
                     "cannot end the sharing of memory at {:#x}: no shared memory begins there", r.address);
    if (at->second.users != 0)
        return error(Errc::kBusy,
                     "cannot end the sharing of memory at {:#x}: {} regions, completion queues or queue "
                     "pairs still use it",
                     r.address, at->second.users);
    ::munmap(at->second.here, at->second.bytes);
    has_bytes_.give(at->second.bytes);
    has_blocks_.give(1);
    blocks_.erase(at);
    return {};
}

Result<std::byte*> Session::locate_bytes(std::uint64_t address, std::uint64_t bytes, std::size_t alignment,
                                         Users& users) {
    auto at = blocks_.upper_bound(address);
    const bool inside = at != blocks_.begin() && bytes != 0 && [&] {
        const Block& block = (--at)->second;
        return address - block.address < block.bytes && bytes <= block.bytes - (address - block.address);
    }();
    if (!inside)
        return error(Errc::kInvalidArgument,
                     "{} bytes at {:#x} do not lie in memory that was shared with the node", bytes, address);
    if (address % alignment != 0)
        return error(Errc::kInvalidArgument, "the address {:#x} is not aligned to {} bytes", address,
                     alignment);
    users.push_back(at->first);
    return at->second.here + (address - at->first);
}

template <class T>
Result<T*> Session::locate(std::uint64_t address, std::uint64_t count, Users& users) {
    GN_ASSIGN(std::byte* const here, locate_bytes(address, count * sizeof(T), alignof(T), users));
    return reinterpret_cast<T*>(here);
}

void Session::use(const Users& users) {
    for (const std::uint64_t block : users) ++blocks_[block].users;
}

void Session::unuse(std::map<std::uint32_t, Users>& owners, std::uint32_t number) {
    const auto owner = owners.find(number);
    if (owner == owners.end()) return;
    for (const std::uint64_t block : owner->second) --blocks_[block].users;
    owners.erase(owner);
}

Result<void> Session::register_memory(const Request& r, Answer& answer) {
    Users users;
    GN_ASSIGN(std::byte* const here, locate_bytes(r.address, r.bytes, 1, users));
    GN_ASSIGN(const MemoryKeys keys, nic_->register_foreign_memory(reinterpret_cast<void*>(r.address),
                                                                   r.bytes, r.access, here, r.number));
    answer.value = keys.lkey;
    answer.second = keys.rkey;
    use(users);
    regions_[keys.lkey] = std::move(users);
    return {};
}

Result<void> Session::create_ring(const Request& r, Answer& answer) {
    if (r.use >= kRingUses)
        return error(Errc::kInvalidArgument, "cannot create a completion queue: {} is no known use of a ring",
                     r.use);
    Users users;
    CompletionQueueConfig config{};
    GN_ASSIGN(config.ring, locate<mlx5::Cqe64>(r.address, std::max(1u, r.entries), users));
    config.entries = r.entries;
    config.collapsed = r.collapsed != 0;
    config.use = static_cast<RingUse>(r.use);
    if (r.record != 0) {
        GN_ASSIGN(config.consumer_record, locate<std::uint32_t>(r.record, 1, users));
    }
    if (r.tickets != 0) {
        GN_ASSIGN(config.tickets, locate<std::uint64_t>(r.tickets, std::max(1u, r.entries), users));
    }
    GN_TRY(has_completion_queues_.take(1));
    const auto made = nic_->create_completion_queue(config);
    if (!made.ok()) {
        has_completion_queues_.give(1);
        return made.error();
    }
    answer.value = *made;
    use(users);
    rings_[answer.value] = std::move(users);
    return {};
}

Result<void> Session::create_queue_pair(const Request& r, Answer& answer) {
    Users users;
    QueuePairConfig config{};
    GN_ASSIGN(config.send_ring, locate<mlx5::SendEntry>(r.address, std::max(1u, r.entries), users));
    config.send_entries = r.entries;
    if (r.receive_ring != 0) {
        GN_ASSIGN(config.receive_ring,
                  locate<mlx5::DataSegment>(r.receive_ring, std::max(1u, r.receive_entries), users));
    }
    config.receive_entries = r.receive_entries;
    GN_ASSIGN(config.doorbell_record, locate<std::uint32_t>(r.record, 2, users));
    GN_ASSIGN(config.bell, locate<std::uint64_t>(r.bell, 1, users));
    config.send_cq = r.send_cq;
    config.receive_cq = r.receive_cq;
    config.scatter_to_cqe = r.scatter_to_cqe != 0;
    config.number = r.number;
    GN_TRY(has_queue_pairs_.take(1));
    auto done = has_send_entries_.take(r.entries);
    if (done.ok()) {
        const auto made = nic_->create_queue_pair(config);
        if (made.ok()) {
            answer.value = *made;
        } else {
            has_send_entries_.give(r.entries);
            done = made.error();
        }
    }
    if (!done.ok()) {
        has_queue_pairs_.give(1);
        return done;
    }
    use(users);
    queue_pairs_[answer.value] = std::move(users);
    send_entries_[answer.value] = r.entries;
    return {};
}

Result<void> Session::connect(const Request& r, Answer& answer) {
    const std::string service(r.service.data(), ::strnlen(r.service.data(), r.service.size()));
    const auto mine =
        std::span(r.private_data).first(std::min<std::size_t>(r.private_bytes, kPrivateBytesMax));
    GN_ASSIGN(const std::vector<std::byte> theirs,
              nic_->connect(r.number, node_, service, mine, std::min(r.timeout_ms, kConnectMsMax)));
    answer.private_bytes = static_cast<std::uint16_t>(std::min(theirs.size(), kPrivateBytesMax));
    std::copy_n(theirs.begin(), answer.private_bytes, answer.private_data.begin());
    return {};
}

}  // namespace gnstor::rdma::shm
