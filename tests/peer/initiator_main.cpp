// initiator_main.cpp: our host side against a target that we did not write: identifies it, then writes and
// reads random data through several queues and compares every byte.
//
//     peer_initiator LOCAL-ADDRESS PEER-ADDRESS PORT NQN QUEUES MEGABYTES SEED [KEYS [HASH GROUP]]
//
// KEYS is a file with the key of this host in its first line and, if the target must prove its own, that of
// the target in the second. With HASH (sha256, sha384, sha512) and GROUP (ffdhe2048 and so on) the host
// offers no other. GROUP null offers the NULL group, and ffdhe2048 beside it, since a host offers at least
// one group. The namespace is a plain one (NVM command set, no fields of ours). Every wait has a deadline;
// the first difference ends it with status 1. What it did are GN_COUNT lines.
#include "nvmf/host/host.hpp"
#include "nvmf/protocol/nqn.hpp"
#include "rdma/wire/loop/soft_nic.hpp"
#include "rdma/wire/udp/udp_wire.hpp"

#include <gnstor/base/private_file.hpp>
#include <gnstor/base/reactor.hpp>
#include <gnstor/simt/time.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace gnstor {
namespace {

constexpr std::uint32_t kDepth = 8;  // commands under way a queue
constexpr std::uint32_t kSlotBytes = 256u << 10;
constexpr std::uint64_t kDeadlineNs = 180'000'000'000;  // of a round of commands
// Beaten between rounds. Over a bad link one takes long: the kernel's rxe heeds one NAK a message and waits
// for its own timeout, half a second, at each further loss.
constexpr std::uint32_t kKeepAliveMs = 300'000;
// On a busy machine the guest, an emulated one, was seen not to run for more than the 2 s in which silence
// ends a connection otherwise.
constexpr std::uint8_t kAckTimeout = 14;
constexpr std::uint32_t kSizes[] = {512, 4096, 8192, 20480, 65536, 131072, kSlotBytes};

struct Options {
    std::string local, peer, service, nqn;
    std::uint32_t queues = 1;
    std::uint64_t megabytes = 1;  // a queue
    std::uint64_t seed = 1;
    std::string keys, hash, group;
};

struct Counts {
    std::uint64_t reads = 0, writes = 0, flushes = 0, in_capsule = 0, bytes_read = 0, bytes_written = 0;
};

/// One I/O queue and the part of the namespace that is its own.
class Lane {
  public:
    Lane(rdma::Nic& nic, std::uint64_t first_byte, std::uint64_t bytes, std::uint32_t block,
         std::uint64_t seed)
        : nic_(nic),
          first_byte_(first_byte),
          block_(block),
          dice_(seed),
          wanted_(bytes),
          buffers_(kDepth * kSlotBytes) {}
    ~Lane() {
        queue_.reset();
        if (registered_) (void)nic_.deregister_memory(keys_);
    }
    Lane(const Lane&) = delete;
    Lane& operator=(const Lane&) = delete;

    Result<void> open(nvmf::HostController& controller, std::uint16_t id) {
        GN_ASSIGN(keys_, nic_.register_memory(buffers_.data(), buffers_.size(),
                                              rdma::kLocalWrite | rdma::kRemoteRead | rdma::kRemoteWrite));
        registered_ = true;
        GN_ASSIGN(queue_, controller.open_io_queue(id, 4 * kDepth));
        controller_ = &controller;
        return {};
    }

    [[nodiscard]] std::uint64_t bytes() const { return wanted_.size(); }

    /// Posts writes of new random bytes, `at` on: all of the part in the end. False: nothing is left.
    Result<bool> post_writes() {
        for (used_ = 0; used_ < kDepth && next_ < wanted_.size(); ++used_) {
            const std::uint32_t bytes = pick_size(wanted_.size() - next_);
            Piece& piece = pieces_[used_] = {next_, bytes};
            std::byte* const from = buffer(used_);
            for (std::uint32_t i = 0; i < bytes; ++i) from[i] = static_cast<std::byte>(dice_());
            std::memcpy(&wanted_[piece.at], from, bytes);
            // Now and then small writes travel in the capsule.
            const bool inside = bytes <= 4096 && dice_() % 2 == 0;
            GN_TRY(post(nvme::IoOpcode::kWrite, used_, inside));
            counts.writes += 1;
            counts.bytes_written += bytes;
            counts.in_capsule += inside ? 1 : 0;
            next_ += bytes;
        }
        return used_ != 0;
    }

    /// Posts reads at random places.
    Result<void> post_reads() {
        for (used_ = 0; used_ < kDepth; ++used_) {
            const std::uint32_t bytes = pick_size(wanted_.size());
            pieces_[used_] = {dice_() % ((wanted_.size() - bytes) / block_ + 1) * block_, bytes};
            std::memset(buffer(used_), 0xEE, bytes);
            GN_TRY(post(nvme::IoOpcode::kRead, used_, false));
            counts.reads += 1;
            counts.bytes_read += bytes;
        }
        return {};
    }

    Result<void> flush() {
        used_ = 1;
        nvme::Command command{};
        command.opcode = static_cast<std::uint8_t>(nvme::IoOpcode::kFlush);
        command.flags = nvme::kFlagsSgl;
        command.namespace_id = 1;
        command.data = nvme::SglDescriptor::keyed(0, 0, 0);
        if (queue_->post(command) != nvmf::HostQueue::Posted::kYes)
            return error(Errc::kState, "a flush could not be posted to the send queue");
        counts.flushes += 1;
        return await_all("flush");
    }

    /// Until all that was posted is answered, each with success.
    Result<void> await_all(const char* what) {
        const std::uint64_t deadline = simt::now_ns() + kDeadlineNs;
        for (std::uint32_t i = 0; i < used_; ++i) {
            GN_ASSIGN(const nvme::Completion completion, nvmf::await_response(*queue_, deadline));
            if (!nvme::ok(completion.result()))
                return nvmf::status_error(what, completion.result(), completion.dw0);
            if (completion.command_id >= used_)
                return error(Errc::kIo, "a {} was completed with the unexpected command identifier {}", what,
                             completion.command_id);
        }
        return {};
    }

    Result<void> compare() {
        for (std::uint32_t i = 0; i < used_; ++i) {
            const Piece& piece = pieces_[i];
            for (std::uint32_t at = 0; at < piece.bytes; ++at)
                if (buffer(i)[at] != wanted_[piece.at + at])
                    return error(Errc::kIo, "byte {} of the namespace differs: read {:#04x}, written {:#04x}",
                                 first_byte_ + piece.at + at, static_cast<unsigned>(buffer(i)[at]),
                                 static_cast<unsigned>(wanted_[piece.at + at]));
        }
        return {};
    }

    Counts counts;

  private:
    struct Piece {
        std::uint64_t at;
        std::uint32_t bytes;
    };

    [[nodiscard]] std::byte* buffer(std::uint32_t slot) {
        return buffers_.data() + std::size_t{slot} * kSlotBytes;
    }

    std::uint32_t pick_size(std::uint64_t most) {
        const std::uint32_t bytes = kSizes[dice_() % std::size(kSizes)] / block_ * block_;
        most = std::min(most, controller_->transfer_bytes_max() / block_ * block_);
        return static_cast<std::uint32_t>(std::min<std::uint64_t>(std::max(bytes, block_), most));
    }

    Result<void> post(nvme::IoOpcode opcode, std::uint32_t slot, bool inside) {
        const Piece& piece = pieces_[slot];
        GN_TRY(controller_->check_transfer(piece.bytes));
        const std::uint64_t lba = (first_byte_ + piece.at) / block_;
        nvme::Command command{};
        command.opcode = static_cast<std::uint8_t>(opcode);
        command.flags = nvme::kFlagsSgl;
        command.command_id = static_cast<std::uint16_t>(slot);
        command.namespace_id = 1;
        command.cdw10 = static_cast<std::uint32_t>(lba);
        command.cdw11 = static_cast<std::uint32_t>(lba >> 32);
        command.cdw12 = piece.bytes / block_ - 1;
        command.data = inside ? nvme::SglDescriptor::unkeyed(nvme::kSglDataBlockOffset, 0, piece.bytes)
                              : nvme::SglDescriptor::keyed(reinterpret_cast<std::uintptr_t>(buffer(slot)),
                                                           piece.bytes, keys_.rkey);
        const std::span<const std::byte> data(buffer(slot), inside ? piece.bytes : 0);
        // An answer may overtake the completion of its own send: the entry is free when that has come.
        const std::uint64_t deadline = simt::now_ns() + kDeadlineNs;
        std::uint32_t backoff = 0;
        for (;;) {
            const auto posted = queue_->post(command, data);
            if (posted == nvmf::HostQueue::Posted::kYes) return {};
            if (posted == nvmf::HostQueue::Posted::kBroken)
                return error(Errc::kState, "the connection of an I/O queue ended");
            if (simt::now_ns() > deadline)
                return error(Errc::kTimedOut, "no send entry became free within the deadline");
            simt::pause(backoff);
        }
    }

    rdma::Nic& nic_;
    nvmf::HostController* controller_ = nullptr;  ///< from open() on
    const std::uint64_t first_byte_;
    const std::uint32_t block_;
    std::mt19937_64 dice_;
    std::vector<std::byte> wanted_;
    std::vector<std::byte> buffers_;
    rdma::MemoryKeys keys_{};
    bool registered_ = false;
    std::unique_ptr<nvmf::HostQueue> queue_;
    std::uint64_t next_ = 0;
    std::uint32_t used_ = 0;
    Piece pieces_[kDepth]{};
};

/// Keep-alive at a third of its time, between rounds of commands, each of which is shorter than the rest.
class Heart {
  public:
    explicit Heart(nvmf::HostController& controller) : controller_(controller) {}
    Result<void> beat() {
        if (simt::now_ns() < due_ns_) return {};
        due_ns_ = simt::now_ns() + controller_.options().keep_alive_ms * 1'000'000ull / 3;
        return controller_.keep_alive();
    }

  private:
    nvmf::HostController& controller_;
    std::uint64_t due_ns_ = 0;
};

Result<void> exercise(std::vector<std::unique_ptr<Lane>>& lanes, nvmf::HostController& controller) {
    Heart heart(controller);
    for (bool more = true; more;) {
        more = false;
        GN_TRY(heart.beat());
        for (auto& lane : lanes) {
            GN_ASSIGN(const bool posted, lane->post_writes());
            more = more || posted;
        }
        for (auto& lane : lanes) GN_TRY(lane->await_all("write"));
    }
    for (auto& lane : lanes) GN_TRY(lane->flush());
    // As many bytes again as were written, at random places.
    for (bool more = true; more;) {
        more = false;
        GN_TRY(heart.beat());
        for (auto& lane : lanes) GN_TRY(lane->post_reads());
        for (auto& lane : lanes) {
            GN_TRY(lane->await_all("read"));
            GN_TRY(lane->compare());
            more = more || lane->counts.bytes_read < lane->bytes();
        }
    }
    return {};
}

std::string trimmed(const char* text, std::size_t bytes) {
    std::string out(text, strnlen(text, bytes));
    out.erase(out.find_last_not_of(' ') + 1);
    return out;
}

/// A name's place among these.
template <std::size_t kCount>
Result<std::uint8_t> number_of(const char* what, const std::string& name,
                               const std::array<const char*, kCount>& names) {
    const auto found = std::ranges::find(names, name);
    if (found == names.end()) return error(Errc::kInvalidArgument, "there is no {} '{}'", what, name);
    return static_cast<std::uint8_t>(found - names.begin());
}

/// What this host offers, where the command line says so.
Result<void> restrict(const Options& options, nvmf::auth::DhchapPolicy& policy) {
    using nvmf::auth::GroupId;
    constexpr std::array kHashes{"sha256", "sha384", "sha512"};
    constexpr std::array kGroups{"null", "ffdhe2048", "ffdhe3072", "ffdhe4096", "ffdhe6144", "ffdhe8192"};
    if (options.hash.empty()) return {};
    GN_ASSIGN(const std::uint8_t hash, number_of("hash", options.hash, kHashes));
    GN_ASSIGN(const std::uint8_t group, number_of("group", options.group, kGroups));
    policy.hashes = {static_cast<nvmf::auth::HashId>(hash + 1)};
    policy.allow_null_group = group == 0;
    policy.groups = {group == 0 ? GroupId::kFfdhe2048 : static_cast<GroupId>(group)};
    return {};
}

/// From a file, since other users see a process's arguments.
Result<std::shared_ptr<const nvmf::HostAuthentication>> read_keys(const Options& options) {
    if (options.keys.empty()) return std::shared_ptr<const nvmf::HostAuthentication>();
    GN_ASSIGN(const std::string text, read_private_file(options.keys, 4096, {"file of keys", "make others"}));
    const std::size_t end = text.find('\n');
    const std::size_t second = text.find('\n', end + 1);
    const std::string of_target = second == std::string::npos ? "" : text.substr(end + 1, second - end - 1);
    GN_ASSIGN(nvmf::HostAuthentication keys, nvmf::parse_host_authentication(text.substr(0, end), of_target));
    GN_TRY(restrict(options, keys.policy));
    return std::make_shared<const nvmf::HostAuthentication>(std::move(keys));
}

Result<void> run(const Options& options) {
    GN_ASSIGN(const auto network, Reactor::start("network"));
    GN_ASSIGN(const auto wire,
              rdma::UdpWire::open({.address = options.local, .ack_timeout = kAckTimeout}, *network));
    GN_ASSIGN(const auto nic, rdma::open_udp_nic(*wire, rdma::NicOptions{}));
    nvmf::HostOptions host;
    host.peer_address = options.peer;
    host.service = options.service;
    host.subsystem_nqn = options.nqn;
    host.host_nqn = nvmf::client_host_nqn(1);
    host.host_id = {1, 2, 3, 4};
    host.io_queues = options.queues;
    host.timeout_ms = 30'000;
    host.keep_alive_ms = kKeepAliveMs;
    GN_ASSIGN(host.authentication, read_keys(options));
    const std::uint64_t start = simt::now_ns();
    GN_ASSIGN(const auto controller, nvmf::HostController::connect(*nic, host));
    GN_ASSIGN(const nvme::IdentifyController about, controller->identify_controller());
    GN_ASSIGN(const nvme::IdentifyNamespace space, controller->identify_namespace());
    const std::uint32_t block = 1u << space.lbaf[space.flbas & 0x0F].ds;
    fmt::print(
        "controller {}: model \"{}\", serial \"{}\", {} blocks of {} bytes, capsules of {} bytes, {} "
        "bytes a command at most (2^64 - 1: any), {} I/O queues; {:.3f} s\n",
        controller->controller_id(), trimmed(about.mn, sizeof about.mn), trimmed(about.sn, sizeof about.sn),
        space.nsze, block, about.ioccsz * 16, controller->transfer_bytes_max(), controller->io_queues(),
        static_cast<double>(simt::now_ns() - start) * 1e-9);
    if (controller->io_queues() < options.queues)
        return error(Errc::kIo, "asked the controller for {} I/O queues, it granted {}", options.queues,
                     controller->io_queues());
    std::vector<std::unique_ptr<Lane>> lanes;
    const std::uint64_t part = options.megabytes << 20;
    for (std::uint32_t i = 0; i < options.queues; ++i) {
        lanes.push_back(std::make_unique<Lane>(*nic, i * part, part, block, options.seed + i));
        GN_TRY(lanes.back()->open(*controller, static_cast<std::uint16_t>(i + 1)));
    }
    GN_TRY(exercise(lanes, *controller));
    Counts sum;
    for (const auto& lane : lanes) {
        sum.reads += lane->counts.reads;
        sum.writes += lane->counts.writes;
        sum.flushes += lane->counts.flushes;
        sum.in_capsule += lane->counts.in_capsule;
        sum.bytes_read += lane->counts.bytes_read;
        sum.bytes_written += lane->counts.bytes_written;
    }
    fmt::print(
        "counts reads={} writes={} flushes={} in_capsule={} bytes_read={} bytes_written={} "
        "retransmissions={} "
        "bad_icrc={}\n",
        sum.reads, sum.writes, sum.flushes, sum.in_capsule, sum.bytes_read, sum.bytes_written,
        wire->counters().retransmissions, wire->counters().bad_icrc);
    return {};
}

}  // namespace
}  // namespace gnstor

int main(int count, char** words) {
    if (count != 8 && count != 9 && count != 11) {
        fmt::print(stderr,
                   "usage: peer_initiator LOCAL-ADDRESS PEER-ADDRESS PORT NQN QUEUES MEGABYTES SEED "
                   "[KEYS [HASH GROUP]]\n");
        return 2;
    }
    gnstor::Options options{.local = words[1],
                            .peer = words[2],
                            .service = words[3],
                            .nqn = words[4],
                            .queues = static_cast<std::uint32_t>(std::strtoul(words[5], nullptr, 0)),
                            .megabytes = std::strtoull(words[6], nullptr, 0),
                            .seed = std::strtoull(words[7], nullptr, 0),
                            .keys = count > 8 ? words[8] : "",
                            .hash = count > 9 ? words[9] : "",
                            .group = count > 9 ? words[10] : ""};
    const auto done = gnstor::run(options);
    if (done.ok()) return 0;
    fmt::print(stderr, "peer_initiator: {}\n", done.error().message);
    return 1;
}
