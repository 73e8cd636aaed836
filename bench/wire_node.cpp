// wire_node.cpp: orders and answers, the node's process and its client's view of it; see wire_node.hpp.
#include "wire_node.hpp"

#include "wire.hpp"

#include "rdma/wire/loop/loop_wire.hpp"
#include "rdma/wire/loop/soft_nic.hpp"
#include "rdma/wire/shm/shm_server.hpp"

#include <gnstor/base/reactor.hpp>

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

namespace gnstor::bench::wire_bench {
namespace {

constexpr int kAnswerMs = 60'000;
/// Longer than any measurement between two orders.
constexpr timeval kOrderWait{.tv_sec = 700, .tv_usec = 0};
constexpr int kOrders = STDIN_FILENO;

enum class What : std::uint32_t { kStart, kFill, kCountGood, kCpuSeconds };

struct Order {
    What what = What::kStart;
    std::uint32_t small = 0;  ///< kStart: log2 of send entries; kCountGood: bytes of a place
    std::uint64_t large = 0;  ///< kStart: bytes of memory; otherwise the seed
    std::array<char, 108> path{};
};

struct Answer {
    std::uint32_t failed = 0;
    std::uint32_t rkey = 0;
    std::uint64_t value = 0;  ///< address, places or CPU nanoseconds
    std::array<char, 240> why{};
};

template <std::size_t N>
void put(std::array<char, N>& room, const std::string& text) {
    std::snprintf(room.data(), N, "%s", text.c_str());
}

/// One order, one answer, within kAnswerMs.
Result<Answer> ask(int orders, const Order& order) {
    if (::send(orders, &order, sizeof order, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof order))
        return error(Errc::kIo, "cannot send a request to the node's process: {}", std::strerror(errno));
    pollfd readable{.fd = orders, .events = POLLIN, .revents = 0};
    int ready = 0;
    while ((ready = ::poll(&readable, 1, kAnswerMs)) < 0 && errno == EINTR) {
    }
    if (ready == 0)
        return error(Errc::kTimedOut, "the node's process did not answer within {} ms", kAnswerMs);
    Answer answer;
    if (::recv(orders, &answer, sizeof answer, 0) != static_cast<ssize_t>(sizeof answer))
        return error(Errc::kIo, "the node's process ended before it answered");
    if (answer.failed != 0)
        return error(Errc::kIo, "the node's process reports an error: {}", answer.why.data());
    return answer;
}

/// All that the node's process holds.
class Node {
  public:
    static Result<std::unique_ptr<Node>> open(EndShape shape, const std::filesystem::path& path) {
        std::unique_ptr<Node> node(new Node());
        GN_ASSIGN(node->reactor_, Reactor::start("gn-node"));
        Reactor* const reactor = node->reactor_.get();
        GN_ASSIGN(node->nic_,
                  rdma::SoftNic::open(node->loop_, kNodeAddress, rdma::NicOptions{}, {&reactor, 1}));
        GN_ASSIGN(node->end_, End::create(*node->nic_, shape));
        node->door_.emplace(node->end_->qp());
        GN_TRY(node->nic_->listen(kService, *node->door_));
        GN_ASSIGN(node->server_,
                  rdma::ShmServer::start(node->loop_, {&reactor, 1}, {.path = path, .node = kNodeAddress}));
        return node;
    }
    ~Node() {
        server_.reset();
        if (door_) nic_->unlisten(kService);
    }
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;

    [[nodiscard]] End& end() const { return *end_; }

  private:
    Node() = default;

    // Destroyed from the last to the first.
    std::unique_ptr<Reactor> reactor_;
    rdma::LoopWire loop_;
    std::unique_ptr<rdma::SoftNic> nic_;
    std::unique_ptr<End> end_;
    std::optional<Door> door_;
    std::unique_ptr<rdma::ShmServer> server_;
};

Result<Answer> obey(const Order& order, std::unique_ptr<Node>& node) {
    Answer answer;
    if (order.what == What::kStart) {
        GN_ASSIGN(node, Node::open({order.small, order.large}, order.path.data()));
        answer.value = reinterpret_cast<std::uint64_t>(node->end().memory().data());
        answer.rkey = node->end().rkey();
        return answer;
    }
    if (node == nullptr)
        return error(Errc::kState, "the node's process received a request before the request to start");
    if (order.what == What::kFill)
        fill(node->end().memory(), order.large);
    else if (order.what == What::kCountGood)
        answer.value = count_good(node->end().memory(), order.large, order.small);
    else if (order.what == What::kCpuSeconds)
        answer.value = static_cast<std::uint64_t>(process_cpu_seconds() * 1e9);
    return answer;
}

}  // namespace

int run_node() {
    // Its orders' end ends it; should it be stuck by then, the kernel does when its client dies.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::setsockopt(kOrders, SOL_SOCKET, SO_RCVTIMEO, &kOrderWait, sizeof kOrderWait) != 0) {
        std::fprintf(stderr,
                     "bench: '%s' is not for users: 'bench wire' starts it itself and sends it requests over "
                     "a socket\n",
                     kNodeWord);
        return 2;
    }
    std::unique_ptr<Node> node;
    Order order;
    while (::recv(kOrders, &order, sizeof order, 0) == static_cast<ssize_t>(sizeof order)) {
        Answer answer;
        auto done = obey(order, node);
        if (done.ok()) {
            answer = *done;
        } else {
            answer.failed = 1;
            put(answer.why, done.error().message);
        }
        if (::send(kOrders, &answer, sizeof answer, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof answer))
            break;
    }
    return 0;
}

Result<std::unique_ptr<NodeProcess>> NodeProcess::start(EndShape shape) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return error(Errc::kIo, "cannot create a socket pair: {}", std::strerror(errno));
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], kOrders);
    char program[] = "gnstor_bench";
    std::string word = kNodeWord;
    char* const words[] = {program, word.data(), nullptr};
    pid_t pid = 0;
    const int why = ::posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, words, environ);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    if (why != 0) {
        ::close(ends[0]);
        return error(Errc::kIo, "cannot start the node's process: {}", std::strerror(why));
    }
    std::unique_ptr<NodeProcess> node(new NodeProcess(
        ends[0], pid, std::filesystem::temp_directory_path() / fmt::format("gnstor-bench-{}.sock", pid)));
    Order order{.what = What::kStart, .small = shape.entries_log2, .large = shape.bytes};
    if (node->path_.string().size() >= order.path.size())
        return error(Errc::kInvalidArgument, "{} is too long for a Unix socket; choose a shorter TMPDIR",
                     node->path_.string());
    put(order.path, node->path_.string());
    GN_ASSIGN(const Answer answer, ask(node->orders_, order));
    node->memory_address_ = answer.value;
    node->rkey_ = answer.rkey;
    return node;
}

NodeProcess::~NodeProcess() {
    ::shutdown(orders_, SHUT_WR);
    // Its end of the pair closes when it exits; what it still answers is of no interest.
    pollfd closed{.fd = orders_, .events = 0, .revents = 0};
    int ready = 0;
    while ((ready = ::poll(&closed, 1, kAnswerMs)) < 0 && errno == EINTR) {
    }
    if (ready == 0) {
        std::fprintf(stderr, "bench: the node's process did not end within %d ms and is killed\n", kAnswerMs);
        ::kill(pid_, SIGKILL);
    }
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
    ::close(orders_);
    std::error_code none;  // a node that was killed leaves it
    std::filesystem::remove(path_, none);
}

bool NodeProcess::alive() const {
    pollfd closed{.fd = orders_, .events = 0, .revents = 0};
    return ::poll(&closed, 1, 0) <= 0;
}

Result<void> NodeProcess::fill(std::uint64_t seed) {
    GN_TRY(ask(orders_, {.what = What::kFill, .large = seed}));
    return {};
}

Result<std::uint64_t> NodeProcess::count_good(std::uint64_t seed, std::uint32_t place_bytes) {
    GN_ASSIGN(const Answer answer, ask(orders_, {What::kCountGood, place_bytes, seed, {}}));
    return answer.value;
}

Result<double> NodeProcess::cpu_seconds() {
    GN_ASSIGN(const Answer answer, ask(orders_, {.what = What::kCpuSeconds}));
    return static_cast<double>(answer.value) * 1e-9;
}

}  // namespace gnstor::bench::wire_bench
