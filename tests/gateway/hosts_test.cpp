// hosts_test.cpp: which hosts a gateway lets in, and what becomes of one whose key is removed or replaced
// while it writes.
#include "gateway/rig.hpp"
#include "nvmf/access/host_list.hpp"
#include "nvmf/auth/random.hpp"

namespace gnstor::test {
namespace {

using nvmf::HostList;
using nvmf::ListedHost;
using nvmf::auth::DhchapKeys;

constexpr char kOther[] = "nqn.2026-11.com.example:other";

DhchapKeys new_keys() {
    return {nvmf::auth::make_key().value(), nvmf::auth::make_key().value()};
}

/// A volume behind a gateway that demands keys, and the keys of the rig's host.
struct Guarded {
    GatewayRig rig{gateway_array(), false, true};
    std::unique_ptr<client::Client> client = rig.client("gateway");
    std::shared_ptr<HostList> list = std::make_shared<HostList>();
    std::string nqn = rig.host("").host_nqn;
    DhchapKeys keys = new_keys(), others = new_keys();
    std::unique_ptr<gateway::ServedVolumes> served;

    explicit Guarded(bool any_host = false) {
        rig.make_volume(*client, "v", 64);
        gateway::ServeOptions options;
        if (!any_host) options.target.hosts = list;
        gateway::GatewayOptions volume;
        volume.volume = "v";
        const gateway::VolumeToServe what{client.get(), volume, ""};
        served = gateway::serve(*rig.target_nic, {&what, 1}, options).value();
    }
    void list_hosts(bool ours) const {
        std::vector<ListedHost> hosts;
        hosts.push_back({kOther, others.clone()});
        if (ours) hosts.push_back({nqn, keys.clone()});
        list->replace(std::move(hosts)).value();
    }
    [[nodiscard]] nvmf::HostOptions host(const DhchapKeys* with, bool both = true) const {
        nvmf::HostOptions o = rig.host(served->nqn(0));
        if (with == nullptr) return o;
        nvmf::HostAuthentication authentication{with->host.clone(), std::nullopt, {}, true};
        if (both) authentication.controller_key = with->controller->clone();
        o.authentication = std::make_shared<const nvmf::HostAuthentication>(std::move(authentication));
        return o;
    }
    void expect_refused(const char* what, const nvmf::HostOptions& o) const {
        const auto connected = nvmf::HostController::connect(*rig.host_nic, o);
        ASSERT_FALSE(connected.ok()) << what;
        EXPECT_EQ(connected.error().code, Errc::kPermission) << what << ": " << connected.error().message;
        EXPECT_EQ(connected.error().message.find("DHHC"), std::string::npos) << what;
    }
};

/// A controller with one queue, which writes a block when it is told to.
struct Writer {
    nvmf::Buffer buffer;
    std::unique_ptr<nvmf::HostController> controller;
    std::unique_ptr<nvmf::HostQueue> queue;

    Writer(const Guarded& g, const nvmf::HostOptions& o)
        : buffer(*g.rig.host_nic, kBlock),
          controller(nvmf::HostController::connect(*g.rig.host_nic, o).value()),
          queue(controller->open_io_queue(1, 16).value()) {}
    /// Nothing: the queue ended.
    std::optional<Status> write() {
        nvme::Command command = block_command(IoOpcode::kWrite, 3, 1);
        command.command_id = 7;
        command.data = buffer.sgl(0, kBlock);
        if (queue->post(command) != nvmf::HostQueue::Posted::kYes) return std::nullopt;
        nvme::Completion completion{};
        bool answered = false;
        EXPECT_TRUE(
            nvmf::eventually([&] { return (answered = queue->poll(completion)) || queue->broken(); }, 60));
        return answered ? std::optional(completion.result()) : std::nullopt;
    }
};

TEST(GatewayHosts, AListedHostWithItsKeyReadsAndWrites) {
    Guarded g;
    g.list_hosts(true);
    for (const bool both : {true, false}) {
        Writer writer(g, g.host(&g.keys, both));
        EXPECT_EQ(writer.write(), Status::kSuccess) << both;
    }
    count("gateway_hosts_let_in", 2);
}

TEST(GatewayHosts, NobodyElseIsLetIn) {
    Guarded g;
    g.expect_refused("an empty list", g.host(&g.keys));
    g.list_hosts(false);
    g.expect_refused("not listed", g.host(&g.keys));
    g.expect_refused("not listed, and without a key", g.host(nullptr));
    g.list_hosts(true);
    g.expect_refused("without a key", g.host(nullptr));
    g.expect_refused("another host's key", g.host(&g.others));
    const DhchapKeys wrong = new_keys();
    g.expect_refused("a wrong key", g.host(&wrong));
    g.expect_refused("a wrong key, and no question", g.host(&wrong, false));
    const DhchapKeys half{g.keys.host.clone(), wrong.controller->clone()};
    g.expect_refused("a gateway that does not prove the key it should have", g.host(&half));
    nvmf::HostOptions o = g.host(&g.keys);
    o.host_nqn = kOther;
    g.expect_refused("the key under another host's name", o);
    Writer writer(g, g.host(&g.keys));
    EXPECT_EQ(writer.write(), Status::kSuccess) << "after all these";
    count("gateway_hosts_refused", 9);
}

TEST(GatewayHosts, AHostLosesItsQueuesWithItsKeyAndTheOthersKeepTheirs) {
    Guarded g;
    g.list_hosts(true);
    nvmf::HostOptions as_other = g.host(&g.others);
    as_other.host_nqn = kOther;
    as_other.host_id = {8};
    Writer other(g, as_other);
    for (const bool removed : {true, false}) {
        Writer writer(g, g.host(&g.keys));
        ASSERT_EQ(writer.write(), Status::kSuccess);
        const DhchapKeys old = g.keys.clone();
        g.keys = new_keys();
        g.list_hosts(!removed);
        EXPECT_TRUE(nvmf::eventually([&] { return !writer.write().has_value(); }, 60)) << removed;
        EXPECT_EQ(other.write(), Status::kSuccess) << removed;
        g.expect_refused("the old key", g.host(&old));
        g.list_hosts(true);
        Writer again(g, g.host(&g.keys));
        EXPECT_EQ(again.write(), Status::kSuccess) << removed;
    }
    EXPECT_EQ(other.write(), Status::kSuccess);
    count("gateway_hosts_ended", 2);
}

TEST(GatewayHosts, WithoutAListAnyHostIsLetIn) {
    Guarded g(true);
    Writer writer(g, g.host(nullptr));
    EXPECT_EQ(writer.write(), Status::kSuccess);
    // A host that has a key does not take a gateway that asks for none for its own.
    g.expect_refused("a gateway that does not ask for the key", g.host(&g.keys));
}

}  // namespace
}  // namespace gnstor::test
