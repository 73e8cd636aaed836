// A daemon that does not answer, neither well nor ill: it is not in the path of I/O, so nothing of that may
// stop.
#include "embedded/bench.hpp"

#include <semaphore>

namespace gnstor::test::stuck_daemon_test {

/// Takes renewals and does not answer them until it is let go.
class StuckDaemon final : public client::ControlPlane {
  public:
    explicit StuckDaemon(client::ControlPlane& below) : below_(below) {}
    Result<client::ClientIdentity> register_client(const std::string& name) override {
        return below_.register_client(name);
    }
    Result<client::ArrayView> array() override { return below_.array(); }
    Result<nvme::VolumeRecord> create_volume(nvme::ClientId c, const client::CreateVolume& r) override {
        return below_.create_volume(c, r);
    }
    Result<client::OpenedVolume> open_volume(nvme::ClientId c, const std::string& n,
                                             client::OpenMode m) override {
        GN_ASSIGN(client::OpenedVolume opened, below_.open_volume(c, n, m));
        opened.lease_ms = 3;  // renewed at once
        return opened;
    }
    Result<std::uint64_t> renew_lease(nvme::ClientId c, nvme::VolumeId v, nvme::Epoch e) override {
        if (!asked_.exchange(true)) {
            stuck_.release();
            go_.acquire();
        }
        return below_.renew_lease(c, v, e);
    }
    Result<void> release_volume(nvme::ClientId c, nvme::VolumeId v, nvme::Epoch e,
                                std::uint64_t bytes) override {
        return below_.release_volume(c, v, e, bytes);
    }
    Result<void> share_volume(nvme::ClientId o, const std::string& n, nvme::ClientId r) override {
        return below_.share_volume(o, n, r);
    }
    Result<void> unshare_volume(nvme::ClientId o, const std::string& n, nvme::ClientId r) override {
        return below_.unshare_volume(o, n, r);
    }
    Result<void> delete_volume(nvme::ClientId o, const std::string& n) override {
        return below_.delete_volume(o, n);
    }
    Result<std::vector<nvme::VolumeRecord>> list_volumes() override { return below_.list_volumes(); }

    void wait_until_stuck() { stuck_.acquire(); }
    void let_go() { go_.release(); }

  private:
    client::ControlPlane& below_;
    std::atomic<bool> asked_{false};
    std::binary_semaphore stuck_{0}, go_{0};
};

TEST(StuckDaemon, KeepAlivesContinueWhileARenewalIsUnanswered) {
    ArrayRig rig;
    StuckDaemon stuck(*rig.control);
    client::ClientOptions o;
    o.name = "owner";
    o.channels = 1;
    o.keep_alive_ms = 10'000;  // what a busy machine does not make late
    auto client = client::Client::connect(stuck, *rig.nic, o).value();
    client::CreateVolume r;
    r.name = "v";
    r.capacity_bytes = 16 * nvme::kBlockBytes;
    (void)client->create(r).value();
    auto volume = client->open("v", client::OpenMode::kWrite).value();
    stuck.wait_until_stuck();
    // Nothing else sends capsules now.
    const std::uint64_t before = rig.node->describe(0).capsules;
    const std::uint64_t deadline = simt::now_ns() + kLongNs / 2;
    while (rig.node->describe(0).capsules < before + 2 && simt::now_ns() < deadline)
        std::this_thread::yield();
    EXPECT_GE(rig.node->describe(0).capsules, before + 2) << "the node received no keep-alives";
    std::vector<std::byte> data(nvme::kBlockBytes, std::byte{2});
    EXPECT_TRUE(volume->write(1, data).ok());
    stuck.let_go();
    EXPECT_TRUE(volume->release().ok());
}

}  // namespace gnstor::test::stuck_daemon_test
