// authentication_test.cpp: which hosts a target that demands authentication lets in, over packets; what a
// host that cannot authenticate may do meanwhile, and what becomes of one whose key is removed or replaced.
#include "loop_rig.hpp"
#include "nvmf/access/derived_hosts.hpp"
#include "nvmf/auth/auth_command.hpp"
#include "nvmf/auth/dhchap_host.hpp"
#include "nvmf/auth/dhchap_messages.hpp"
#include "nvmf/auth/random.hpp"
#include "nvmf/host/authenticate.hpp"
#include "stock_host.hpp"

#include <gnstor/nvme/fencing.hpp>
#include <gnstor/nvme/host_set.hpp>

namespace gnstor::nvmf {
namespace {

using auth::DhchapKey;
using auth::KeyTransform;
using nvme::Status;

constexpr nvme::ClientId kOther = 10;

DhchapKey node_key(std::uint8_t first = 0) {
    std::vector<std::byte> bytes(64);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(first + i);
    return DhchapKey::from_bytes(KeyTransform::kSha512, bytes).value();
}

std::shared_ptr<const HostAuthentication> keys_of(const std::string& nqn, std::uint32_t generation,
                                                  const DhchapKey& secret = node_key()) {
    auth::DhchapKeys keys = auth::derive_keys(secret, nqn, generation).value();
    HostAuthentication out{std::move(keys.host), std::move(keys.controller), {}, true};
    out.policy.require_bidirectional = true;
    return std::make_shared<const HostAuthentication>(std::move(out));
}

nvme::HostSetPage page(std::uint64_t version, const std::map<nvme::ClientId, std::uint32_t>& hosts,
                       std::uint64_t term = kTerm) {
    nvme::HostSetPage p{};
    p.record_version = nvme::kHostSetVersion;
    p.term = term;
    p.version = version;
    for (const auto& [client, generation] : hosts) p.entries[p.count++] = {client, 0, generation};
    p.total = p.count;
    return p;
}

struct Guarded {
    std::shared_ptr<DerivedHosts> hosts =
        std::make_shared<DerivedHosts>(node_key(), std::string(kAdminHostNqn));
    LoopRig rig;

    explicit Guarded(RigOptions options = {}) : rig(with_hosts(std::move(options))) {}
    RigOptions with_hosts(RigOptions options) const {
        options.udp = !options.shm && options.late_windows == 0;
        options.target.hosts = hosts;
        return options;
    }
    HostOptions host(nvme::ClientId client, std::uint32_t generation) const {
        HostOptions o = rig.host(client_host_nqn(client));
        o.authentication = keys_of(o.host_nqn, generation);
        return o;
    }
    HostOptions admin() const {
        HostOptions o = rig.host(std::string(kAdminHostNqn));
        o.authentication = keys_of(o.host_nqn, 0);
        return o;
    }
    /// HOST SET, sent as gnstord does.
    static Status set(HostController& admin, nvme::HostSetPage p) {
        nvme::Command command{};
        command.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::kHostSet);
        command.flags = nvme::kFlagsSgl;
        return admin.admin(command, bytes_of(p), Direction::kToDrive).value().result();
    }
    void make_volume() const {
        auto connected = rig.connect(admin());
        ASSERT_TRUE(connected.ok()) << connected.error().message;
        ASSERT_TRUE((*connected)->map_set(kTerm, rig.map()).ok());
        ASSERT_TRUE((*connected)->volume_add(kTerm, sample_record()).ok());
        ASSERT_EQ(set(**connected, page(1, {{kWriter, 1}})), Status::kSuccess);
    }
    /// Then no host has proven a key at this address.
    void make_volume_and_leave() {
        make_volume();
        EXPECT_TRUE(eventually([&] { return rig.target().connections_open() == 0; }));
    }
    StockOptions stranger(const std::string& nqn) const {
        const HostOptions as = rig.host(nqn);
        StockOptions o;
        o.peer = as.peer_address;
        o.service = as.service;
        o.subsystem_nqn = as.subsystem_nqn;
        o.host_nqn = nqn;
        return o;
    }
};

nvme::Command write_command(const nvme::VolumeRecord& record, std::uint64_t sequence) {
    nvme::IoFields fields{};
    fields.client = kWriter;
    fields.volume = record.geometry.volume;
    fields.block = 3;
    fields.blocks = 1;
    fields.epoch = record.epoch;
    fields.map_version = 1;
    fields.sequence = sequence;
    return nvme::encode_io(nvme::IoOpcode::kWrite, fields);
}

TEST(HostAuthentication, AHostWithItsKeyReadsAndWritesOnEveryQueue) {
    Guarded g;
    g.make_volume();
    auto connected = g.rig.connect(g.host(kWriter, 1));
    ASSERT_TRUE(connected.ok()) << connected.error().message;
    IoClient io(g.rig.host_nic(), **connected, 1);
    io.buffer.fill(7);
    nvme::Command write = write_command(sample_record(), 1);
    write.data = io.buffer.sgl(0, nvme::kBlockBytes);
    EXPECT_EQ(io.run(write).result(), Status::kSuccess);
}

TEST(HostAuthentication, AHostThatAsksForNoProofReturnsTheMemoryOfTheExchange) {
    // Success1 is its last message: the NIC frees that one's window when the host is already let in.
    Guarded g;
    g.make_volume();
    HostOptions o = g.host(kWriter, 1);
    auto keys = keys_of(o.host_nqn, 1);
    o.authentication = std::make_shared<const HostAuthentication>(
        HostAuthentication{keys->host_key.clone(), std::nullopt, {}, true});
    for (int round = 0; round < 3; ++round) {
        auto connected = g.rig.connect(o);
        ASSERT_TRUE(connected.ok()) << connected.error().message;
        IoClient io(g.rig.host_nic(), **connected, 1);
        for (std::uint64_t i = 1; i <= 8; ++i) {
            io.buffer.fill(static_cast<std::uint8_t>(i));
            nvme::Command write = write_command(sample_record(), 10 * round + i);
            write.data = io.buffer.sgl(0, nvme::kBlockBytes);
            ASSERT_EQ(io.run(write).result(), Status::kSuccess) << round;
        }
        EXPECT_TRUE((*connected)->identify_controller().ok());
    }
    EXPECT_EQ(g.rig.target().counters(g.rig.host().subsystem_nqn)->waits_for_memory, 0u);
}

TEST(HostAuthentication, AHostWithoutItsOwnValidKeyIsRefused) {
    Guarded g;
    g.make_volume();
    const auto refused = [&](const char* what, HostOptions o) {
        const auto connected = g.rig.connect(o);
        ASSERT_FALSE(connected.ok()) << what;
        EXPECT_EQ(connected.error().code, Errc::kPermission) << what << ": " << connected.error().message;
        for (const char* secret : {"DHHC-1", "AAECAw"})
            EXPECT_EQ(connected.error().message.find(secret), std::string::npos) << what;
    };
    HostOptions o = g.host(kWriter, 1);
    o.authentication = nullptr;
    refused("no key", o);
    refused("a key of an earlier or later generation", g.host(kWriter, 2));
    refused("a client that is not listed", g.host(kOther, 1));
    o = g.host(kOther, 1);
    o.host_nqn = client_host_nqn(kWriter);
    refused("another host's key", o);
    o = g.host(kWriter, 1);
    o.authentication = keys_of(o.host_nqn, 1, node_key(1));
    refused("the key for another node", o);
    o = g.admin();
    o.authentication = keys_of(client_host_nqn(kWriter), 1);
    refused("a client as the array's admin host", o);
    o = g.rig.host(kStockHostNqn);
    o.authentication = keys_of(client_host_nqn(kWriter), 1);
    refused("a host that is no client", o);
    EXPECT_TRUE(g.rig.connect(g.host(kWriter, 1)).ok()) << "those who are known are served meanwhile";
}

TEST(HostAuthentication, NoCommandIsServedBeforeTheQueueHasAuthenticated) {
    Guarded g;
    g.make_volume();
    StockHost stranger(g.rig.host_nic(), g.stranger(std::string(kAdminHostNqn)));
    const nvme::Completion connected = stranger.connect_admin();
    ASSERT_EQ(connected.result(), Status::kSuccess);
    EXPECT_EQ(connected.dw0 & ~0xFFFFu, nvme::kConnectAuthenticate) << "AUTHREQ";
    std::vector<std::byte> room(4096, std::byte{0x5C});
    for (std::uint32_t opcode = 0; opcode < 256; ++opcode) {
        nvme::Command command = stock_command(static_cast<std::uint8_t>(opcode));
        const auto need = data_need(QueueKind::kAdmin, command);
        if (is_fabrics(command) || !nvme::ok(need.status)) continue;
        const auto answer =
            stranger.admin().keyed(command, std::span(room).first(need.direction == Direction::kNone ? 0
                                                                  : need.any_length                  ? 64
                                                                                    : need.bytes));
        EXPECT_EQ(answer.result(), Status::kAuthenticationRequired) << opcode;
    }
    for (const auto type : {nvme::FabricsType::kPropertyGet, nvme::FabricsType::kPropertySet}) {
        nvme::Command command = stock_command(static_cast<std::uint8_t>(nvme::AdminOpcode::kFabrics));
        command.namespace_id = static_cast<std::uint8_t>(type);
        EXPECT_EQ(stranger.admin().keyed(command, {}).result(), Status::kAuthenticationRequired);
    }
    EXPECT_TRUE(std::ranges::all_of(room, [](std::byte b) { return b == std::byte{0x5C}; }));
}

TEST(HostAuthentication, AnIoQueueNeedsAnAdminQueueThatHasAuthenticated) {
    Guarded g;
    g.make_volume();
    auto known = g.rig.connect(g.host(kWriter, 1));  // by it the address is known, the controller is not
    ASSERT_TRUE(known.ok()) << known.error().message;
    StockHost stranger(g.rig.host_nic(), g.stranger(client_host_nqn(kWriter)));
    ASSERT_EQ(stranger.connect_admin().result(), Status::kSuccess);
    StockQueue queue(g.rig.host_nic(), kStockAdminEntries);
    EXPECT_EQ(stranger.connect_io(queue, 1).result(), Status::kConnectInvalidHost);
}

TEST(HostAuthentication, AHostWithKeysRefusesAControllerThatDoesNotAskForThem) {
    RigOptions packets;
    packets.udp = true;
    LoopRig open(packets);
    HostOptions o = open.host();
    o.authentication = keys_of(o.host_nqn, 1);
    const auto connected = open.connect(o);
    ASSERT_FALSE(connected.ok());
    EXPECT_EQ(connected.error().code, Errc::kPermission) << connected.error().message;
}

TEST(HostAuthentication, AHostSaysWhyItGaveUpAlsoIfTheControllerThenEndsTheConnection) {
    const auto keys = keys_of(client_host_nqn(kWriter), 1);
    std::uint32_t sent = 0;
    const AuthCommands commands{
        .send = [&](const nvme::Command&, std::span<const std::byte>) -> Result<nvme::Completion> {
            if (sent++ == 0) return nvme::Completion{};
            return error(Errc::kState, "the connection has ended");
        },
        .receive = [](const nvme::Command&, std::span<std::byte> buffer) -> Result<nvme::Completion> {
            // The NULL group, which was not offered; the first queue's transaction is 0.
            const auto challenge = encode(auth::Challenge{.transaction = 0,
                                                          .hash = auth::HashId::kSha256,
                                                          .group = auth::GroupId::kNull,
                                                          .sequence = 7,
                                                          .challenge = std::vector<std::byte>(32),
                                                          .public_value = {}});
            std::ranges::copy(challenge, buffer.begin());
            return nvme::Completion{};
        }};
    const auto done = authenticate({client_host_nqn(kWriter), "nqn.2026-11.com.example:x", 0},
                                   nvme::kConnectAuthenticate, keys.get(), commands);
    ASSERT_FALSE(done.ok());
    EXPECT_EQ(done.error().code, Errc::kPermission);
    EXPECT_NE(done.error().message.find("a group that was not offered"), std::string::npos)
        << done.error().message;
    EXPECT_EQ(sent, 2u) << "AUTH_Failure2 is sent";
}

TEST(HostAuthentication, PeersForWhichTheWireVouchesNeedNoKey) {
    RigOptions late;
    late.late_windows = 1;
    Guarded loop(late);
    EXPECT_TRUE(loop.rig.connect(loop.rig.host()).ok());
    RigOptions shared;
    shared.shm = true;
    Guarded shm(shared);
    EXPECT_TRUE(shm.rig.connect(shm.rig.host()).ok()) << "a process of the same user";
}

TEST(HostAuthentication, ALocalProcessOfAnotherUserMustAuthenticateOrIsNoAdmin) {
    RigOptions other;
    other.late_windows = 1;
    other.kind = rdma::PeerKind::kOtherUser;
    {
        Guarded g(other);
        EXPECT_FALSE(g.rig.connect(g.rig.host(std::string(kAdminHostNqn))).ok());
        EXPECT_TRUE(g.rig.connect(g.admin()).ok());
    }
    LoopRig open(other);  // its target asks no host to authenticate
    EXPECT_FALSE(open.connect(open.host(std::string(kAdminHostNqn))).ok());
    EXPECT_TRUE(open.connect(open.host()).ok());
}

TEST(HostAuthentication, AClientOfTheSameUserThatIsRemovedLosesItsQueues) {
    RigOptions late;
    late.late_windows = 1;
    Guarded g(late);
    auto admin = g.rig.connect(g.rig.host(std::string(kAdminHostNqn))).value();
    ASSERT_EQ(Guarded::set(*admin, page(1, {{kWriter, 1}, {kOther, 1}})), Status::kSuccess);
    auto writer = g.rig.connect(g.rig.host()).value();
    auto other = g.rig.connect(g.rig.host(client_host_nqn(kOther))).value();
    ASSERT_EQ(Guarded::set(*admin, page(2, {{kOther, 1}})), Status::kSuccess);
    EXPECT_FALSE(writer->keep_alive().ok());
    EXPECT_TRUE(other->keep_alive().ok());
    EXPECT_FALSE(g.rig.connect(g.rig.host()).ok()) << "nor does it get others";
    EXPECT_TRUE(g.rig.connect(g.rig.host(client_host_nqn(kOther))).ok());
}

TEST(HostAuthentication, ARemovedOrRotatedKeyEndsTheQueuesBeforeHostSetIsAnswered) {
    Guarded g;
    g.make_volume();
    auto admin = g.rig.connect(g.admin()).value();
    std::uint64_t version = 1;
    const std::pair<std::uint32_t, std::map<nvme::ClientId, std::uint32_t>> steps[] = {{1, {{kWriter, 2}}},
                                                                                       {2, {}}};
    for (const auto& [generation, hosts] : steps) {
        auto live = g.rig.connect(g.host(kWriter, generation)).value();
        auto queue = live->open_io_queue(1, 16).value();
        ASSERT_EQ(Guarded::set(*admin, page(++version, hosts)), Status::kSuccess);
        EXPECT_EQ(g.rig.target().connections_open(), 1u) << "only the admin host is left";
        EXPECT_TRUE(eventually([&] { return queue->broken(); }));
        EXPECT_FALSE(g.rig.connect(g.host(kWriter, generation)).ok());
    }
    EXPECT_TRUE(admin->keep_alive().ok()) << "the admin host stays";
}

TEST(HostAuthentication, HostSetIsForTheAdminHostAlone) {
    Guarded g;
    g.make_volume();
    auto writer = g.rig.connect(g.host(kWriter, 1)).value();
    EXPECT_EQ(Guarded::set(*writer, page(9, {{kOther, 1}})), Status::kAccessDenied);
    EXPECT_FALSE(g.rig.connect(g.host(kOther, 1)).ok());
}

TEST(HostAuthentication, ATargetThatAuthenticatesNobodyTakesNoHostSet) {
    RigOptions packets;
    packets.udp = true;
    LoopRig open(packets);
    auto admin = open.connect(open.host(std::string(kAdminHostNqn))).value();
    EXPECT_EQ(Guarded::set(*admin, page(1, {})), Status::kInvalidOpcode);
}

TEST(HostAuthentication, ADiscoveryControllerTakesNoHostSet) {
    RigOptions options;
    options.target.ports = {{"4421", ""}};
    Guarded g(options);
    g.make_volume();
    StockOptions discovery = g.stranger(std::string(kAdminHostNqn));
    discovery.service = "4421";
    discovery.subsystem_nqn = std::string(kDiscoveryNqn);
    StockHost stranger(g.rig.host_nic(), discovery);
    ASSERT_EQ(stranger.connect_admin().result(), Status::kSuccess) << "discovery is open";
    stranger.enable();
    nvme::HostSetPage empty = page(1, {}, kTerm + 1);
    const nvme::Command command = stock_command(static_cast<std::uint8_t>(nvme::AdminOpcode::kHostSet));
    EXPECT_EQ(stranger.admin().keyed(command, bytes_of(empty)).result(), Status::kAccessDenied);
    EXPECT_TRUE(g.rig.connect(g.host(kWriter, 1)).ok()) << "the list is as gnstord sent it";
}

TEST(HostAuthentication, OneCommandOfAuthenticationIsTakenAtATime) {
    Guarded g;
    g.make_volume();
    StockHost crowd(g.rig.host_nic(), g.stranger(client_host_nqn(kWriter)));
    ASSERT_EQ(crowd.connect_admin().result(), Status::kSuccess);
    // Keyed data, which the target fetches: the later ones arrive before the first one's data.
    Buffer memory(g.rig.host_nic(), 64u << 10);
    constexpr int kCommands = 16;
    for (int i = 0; i < kCommands; ++i) {
        nvme::Command send = auth::auth_command(auth::AuthDirection::kSend, 4096);
        send.data = memory.sgl(static_cast<std::size_t>(i) * 4096, 4096);
        crowd.admin().post(send);
    }
    int refused = 0;
    for (int i = 0; i < kCommands; ++i)
        if (crowd.admin().wait().result() == Status::kCommandSequenceError) ++refused;
    EXPECT_GT(refused, 0) << "those that came before the first one was answered";
}

TEST(HostAuthentication, AHostThatFallsSilentIsDisconnectedAtTheDeadline) {
    RigOptions options;
    options.manual_clock = true;
    options.target.auth_timeout_ms = 2'000;
    Guarded g(options);
    StockHost silent(g.rig.host_nic(), g.stranger(client_host_nqn(kWriter)));
    ASSERT_EQ(silent.connect_admin().result(), Status::kSuccess);
    // Half an exchange: the negotiation, and then nothing.
    auto host = auth::DhchapHost::create({client_host_nqn(kWriter), g.rig.host().subsystem_nqn, 0, {}},
                                         node_key(), nullptr, auth::system_random())
                    .value();
    const std::vector<std::byte> first = host.start();
    std::vector<std::byte> message(first);
    const auto sent = silent.admin().keyed(
        auth::auth_command(auth::AuthDirection::kSend, static_cast<std::uint32_t>(message.size())), message);
    ASSERT_EQ(sent.result(), Status::kSuccess);
    g.rig.clock_ns += kSecond;
    g.rig.target().check_time();
    g.rig.round();
    EXPECT_EQ(g.rig.target().connections_open(), 1u);
    g.rig.clock_ns += 2 * kSecond;
    g.rig.target().check_time();
    EXPECT_TRUE(eventually([&] { return g.rig.target().connections_open() == 0; }));
}

TEST(HostAuthentication, AFailedAttemptGetsNoSecondOneOnItsConnection) {
    Guarded g;
    g.make_volume();
    StockHost stranger(g.rig.host_nic(), g.stranger(client_host_nqn(kWriter)));
    ASSERT_EQ(stranger.connect_admin().result(), Status::kSuccess);
    std::vector<std::byte> nonsense(64, std::byte{0xEE});
    const nvme::Command send = auth::auth_command(auth::AuthDirection::kSend, 64);
    EXPECT_EQ(stranger.admin().keyed(send, nonsense).result(), Status::kSuccess) << "AUTH_Failure1 tells";
    EXPECT_EQ(stranger.admin().keyed(send, nonsense).result(), Status::kCommandSequenceError);
    std::vector<std::byte> room(4096);
    const auto told = stranger.admin().keyed(auth::auth_command(auth::AuthDirection::kReceive, 4096), room);
    EXPECT_EQ(told.result(), Status::kSuccess);
    EXPECT_TRUE(eventually([&] { return g.rig.target().connections_open() == 0; })) << "it is disconnected";
}

TEST(HostAuthentication, HostsThatBeginAndStopLeaveRoomForOthers) {
    RigOptions options;
    options.target.authenticating_of_peer_max = 4;
    options.target.authenticating_max = 4;
    options.manual_clock = true;
    Guarded g(options);
    g.make_volume();
    std::vector<std::unique_ptr<StockHost>> crowd;
    for (int i = 0; i < 40; ++i) {
        crowd.push_back(std::make_unique<StockHost>(g.rig.host_nic(), g.stranger(client_host_nqn(kOther))));
        const auto answer = crowd.back()->connect_admin();
        EXPECT_EQ(answer.result(), Status::kSuccess) << i;
    }
    EXPECT_TRUE(eventually([&] { return g.rig.target().connections_open() == 4; })) << "the oldest give way";
    EXPECT_TRUE(g.rig.connect(g.host(kWriter, 1)).ok()) << "who has a key gets in meanwhile";
    g.rig.clock_ns += 60 * kSecond;
    g.rig.target().check_time();
    EXPECT_TRUE(eventually([&] { return g.rig.target().connections_open() == 0; }));
    EXPECT_TRUE(g.rig.connect(g.host(kWriter, 1)).ok());
}

/// RDMA connections from which no Connect follows.
class SilentCrowd {
  public:
    SilentCrowd(Guarded& g, int connections, std::uint32_t entries, std::uint16_t queue_id = 0) {
        const StockOptions to = g.stranger(client_host_nqn(kOther));
        for (int i = 0; i < connections; ++i) {
            queues_.push_back(HostQueue::create(g.rig.host_nic(), entries).value());
            (void)queues_.back()
                ->connect(to.peer, to.service, transport_request_data(queue_id, entries, 0), 1'000)
                .ok();
        }
    }

  private:
    std::vector<std::unique_ptr<HostQueue>> queues_;
};

TEST(Strangers, OfOneAddressGiveWayToNewerOnesInEveryState) {
    RigOptions options;
    options.target.ports = {{"4421", ""}};
    options.target.strangers_of_peer_max = 4;
    Guarded g(options);
    g.make_volume_and_leave();
    StockOptions discovery = g.stranger(client_host_nqn(kOther));
    discovery.service = "4421";
    discovery.subsystem_nqn = std::string(kDiscoveryNqn);
    discovery.keep_alive_s = 4'000'000;
    std::vector<std::unique_ptr<StockHost>> crowd;
    for (int i = 0; i < 40; ++i) {
        crowd.push_back(std::make_unique<StockHost>(g.rig.host_nic(), discovery));
        EXPECT_EQ(crowd.back()->connect_admin().result(), Status::kSuccess) << i;
    }
    EXPECT_TRUE(eventually([&] { return g.rig.target().connections_open() == 4; }))
        << "discovery connections that stay, with a keep-alive time of weeks";
    const SilentCrowd silent(g, 40, 32);
    EXPECT_TRUE(eventually([&] { return g.rig.target().connections_open() == 4; }))
        << "connections before Connect";
    auto known = g.rig.connect(g.host(kWriter, 1));
    ASSERT_TRUE(known.ok()) << known.error().message;
    IoClient client(g.rig.host_nic(), **known, 1);
    const SilentCrowd more(g, 10, 32);
    EXPECT_EQ(client.status(io(nvme::IoOpcode::kRead, fields(0, 2), client.buffer.sgl(0, 8192))),
              Status::kSuccess)
        << "a queue whose host has proven its key is not ended for strangers";
}

TEST(Strangers, OfAllAddressesGiveWayToNewerOnes) {
    RigOptions options;
    options.target.strangers_max = 6;
    Guarded g(options);
    g.make_volume_and_leave();
    const SilentCrowd silent(g, 40, 32);
    EXPECT_TRUE(eventually([&] { return g.rig.target().connections_open() == 6; }));
    EXPECT_TRUE(g.rig.connect(g.host(kWriter, 1)).ok());
}

TEST(Strangers, OccupyAtMostASixteenthOfTheEntriesFromOneAddress) {
    RigOptions options;
    options.target.entries_max = 16 * 64;
    Guarded g(options);
    g.make_volume_and_leave();
    const SilentCrowd silent(g, 20, 32);
    EXPECT_TRUE(eventually([&] { return g.rig.target().connections_open() == 2; }));
    EXPECT_TRUE(g.rig.connect(g.host(kWriter, 1)).ok());
}

TEST(Strangers, GetNoIoQueue) {
    Guarded g;
    g.make_volume_and_leave();
    const std::uint64_t before = g.rig.counters().connections_refused;
    const SilentCrowd silent(g, 5, 128, 1);
    EXPECT_EQ(g.rig.counters().connections_refused, before + 5);
    EXPECT_EQ(g.rig.target().connections_open(), 0u);
}

TEST(Strangers, AreNotThoseWhoseAddressHasProvenAKey) {
    RigOptions options;
    options.target.strangers_of_peer_max = 2;
    options.target.strangers_max = 2;
    Guarded g(options);
    g.make_volume();
    auto known = g.rig.connect(g.host(kWriter, 1));
    ASSERT_TRUE(known.ok()) << known.error().message;
    // A Linux host makes the RDMA connections of all its I/O queues before it sends the first Connect.
    const SilentCrowd queues(g, 12, 128, 1);
    EXPECT_TRUE(eventually([&] { return g.rig.target().connections_open() >= 13; }));
}

TEST(DerivedHosts, KeysFollowFromNodeKeyHostAndGeneration) {
    // From another implementation of HMAC-SHA-512: Python's hmac.
    constexpr char kHost[] =
        "a584214c0f7242ea9e21314439580ab052723f9c9045ae887bfaca63a2ce8860"
        "87ad4dec6029c9ba498769002e4fbfa73d320663da3d79aa8cdf428a01fdfc1c";
    constexpr char kController[] =
        "393ae96901ce84a07eb8c0647b884ea37641aa96e985d487bc8b2850fa8f73bb"
        "a9771420d14d805b293598170fea0948c326d72ed4a1e5561842ebd115a73d3f";
    const auto keys = auth::derive_keys(node_key(), "nqn.2026-11.io.gnstor:client:9", 1).value();
    const auto hex = [](std::span<const std::byte> bytes) {
        std::string text;
        for (const std::byte b : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(b));
        return text;
    };
    EXPECT_EQ(hex(keys.host.bytes()), kHost);
    EXPECT_EQ(hex(keys.controller->bytes()), kController);
}

TEST(DerivedHosts, BeforeTheFirstListOnlyTheAdminHostIsKnown) {
    DerivedHosts hosts(node_key(), std::string(kAdminHostNqn));
    EXPECT_TRUE(hosts.find(kAdminHostNqn));
    EXPECT_FALSE(hosts.find(client_host_nqn(kWriter)));
    EXPECT_FALSE(hosts.find("nqn.2026-11.io.gnstor:client:0"));
    EXPECT_FALSE(hosts.find(""));
}

TEST(DerivedHosts, AListTakesEffectAsAWholeAndNeverGoesBack) {
    DerivedHosts hosts(node_key(), std::string(kAdminHostNqn));
    EXPECT_EQ(hosts.set(page(2, {{1, 1}})), Status::kSuccess);
    EXPECT_EQ(hosts.set(page(2, {{2, 1}})), Status::kSuccess) << "the same version: no effect";
    EXPECT_EQ(hosts.set(page(1, {{2, 1}})), Status::kInvalidField) << "an older list of the same daemon";
    EXPECT_EQ(hosts.set(page(1, {}, ~0ull)), Status::kCommandSequenceError)
        << "a term that no daemon reaches";
    EXPECT_EQ(hosts.set(page(1, {}, kTerm + nvme::kTermLeapMost + 1)), Status::kCommandSequenceError);
    EXPECT_TRUE(hosts.find(client_host_nqn(1)));
    EXPECT_FALSE(hosts.find(client_host_nqn(2)));
    EXPECT_EQ(hosts.set(page(9, {{2, 1}}, kTerm - 1)), Status::kStaleTerm);
    // 600 hosts in two pages.
    std::vector<nvme::HostSetPage> pages(2);
    for (std::uint32_t i = 0; i < 600; ++i) {
        nvme::HostSetPage& p = pages[i / nvme::kHostSetEntriesMax];
        p.entries[p.count++] = {static_cast<nvme::ClientId>(100 + i), 0, 1};
    }
    for (nvme::HostSetPage& p : pages) {
        p.record_version = nvme::kHostSetVersion;
        p.term = kTerm + 1;
        p.version = 1;
        p.total = 600;
    }
    pages[1].first = pages[0].count;
    EXPECT_EQ(hosts.set(pages[1]), Status::kInvalidField) << "a page that follows none";
    EXPECT_EQ(hosts.set(pages[0]), Status::kSuccess);
    EXPECT_TRUE(hosts.find(client_host_nqn(1))) << "the old list until the new one is whole";
    EXPECT_FALSE(hosts.find(client_host_nqn(100)));
    const std::uint64_t before = hosts.version();
    EXPECT_EQ(hosts.set(pages[1]), Status::kSuccess);
    EXPECT_NE(hosts.version(), before);
    EXPECT_FALSE(hosts.find(client_host_nqn(1)));
    EXPECT_TRUE(hosts.find(client_host_nqn(699)));
}

TEST(DerivedHosts, MalformedPagesAreRefused) {
    DerivedHosts hosts(node_key(), std::string(kAdminHostNqn));
    const auto refused = [&](const char* what, auto change) {
        nvme::HostSetPage p = page(1, {{1, 1}, {2, 1}});
        change(p);
        EXPECT_EQ(hosts.set(p), Status::kInvalidField) << what;
        EXPECT_FALSE(hosts.find(client_host_nqn(1))) << what;
    };
    refused("another version", [](auto& p) { p.record_version = 2; });
    refused("more entries than a page has", [](auto& p) { p.count = nvme::kHostSetEntriesMax + 1; });
    refused("more entries than the list has", [](auto& p) { p.total = 1; });
    refused("client 0", [](auto& p) { p.entries[0].client = 0; });
    refused("generation 0", [](auto& p) { p.entries[1].generation = 0; });
    refused("not in order", [](auto& p) { p.entries[1].client = 1; });
    refused("an empty page of a list that is not empty", [](auto& p) { p.count = 0; });
    refused("a list longer than there are ids", [](auto& p) { p.total = 0x10000; });
}

}  // namespace
}  // namespace gnstor::nvmf
