// stock_host.hpp: a host that speaks as Linux's nvme-rdma does, over any wire: what it sends, in which order,
// with which SGLs; and what it checks.
//
// On the admin queue data is always under a key that the response invalidates; on I/O queues a write of up to
// the in-capsule size (ioccsz) travels in the capsule; commands without data carry a null keyed SGL.
#pragma once

#include "nvmf/host/host.hpp"
#include "rdma/wire/loop/soft_nic.hpp"

#include <gnstor/nvme/features.hpp>
#include <gnstor/simt/time.hpp>

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gnstor::nvmf {

inline constexpr const char* kStockHostNqn =
    "nqn.2014-08.org.nvmexpress:uuid:1b4e28ba-2fa1-11d2-883f-0016d3cca427";
inline constexpr std::uint32_t kStockAdminEntries = 32;  // NVME_AQ_DEPTH

struct StockOptions {
    std::string peer = "node";
    std::string service = "4420";
    std::string subsystem_nqn;
    std::string host_nqn = kStockHostNqn;
    std::uint32_t keep_alive_s = 120;  // Linux says 5 and sends one every 2.5 s; these send none
    std::uint32_t queue_size = 128;
    bool disable_sq_flow = false;
};

inline nvme::Command stock_command(std::uint8_t opcode) {
    nvme::Command c{};
    c.opcode = opcode;
    c.flags = nvme::kFlagsSgl;
    c.data.type = nvme::kSglKeyedAddress;  // the null SGL: length 0
    return c;
}

/// One queue of a stock host.
class StockQueue {
  public:
    StockQueue(rdma::Nic& nic, std::uint32_t entries)
        : nic_(nic), queue_(HostQueue::create(nic, entries).value()) {}

    HostQueue& queue() { return *queue_; }
    nvme::Completion wait() { return await_response(*queue_, simt::now_ns() + 100'000'000'000).value(); }
    void post(nvme::Command& command, std::span<const std::byte> in_capsule = {}) {
        ASSERT_TRUE(try_post(command, in_capsule));
    }
    /// False: the connection is gone.
    bool try_post(nvme::Command& command, std::span<const std::byte> in_capsule = {}) {
        command.command_id = next_id_++;
        const std::uint64_t until = simt::now_ns() + 100'000'000'000;
        auto posted = queue_->post(command, in_capsule);
        while (posted == HostQueue::Posted::kFull && simt::now_ns() < until)
            posted = queue_->post(command, in_capsule);
        return posted == HostQueue::Posted::kYes;
    }
    /// Data under a key of its own, invalidated with the response.
    nvme::Completion keyed(nvme::Command command, std::span<std::byte> data) {
        if (data.empty()) {
            post(command);
            return answer_to(command);
        }
        const auto keys = nic_.register_memory(data.data(), data.size(),
                                               rdma::kLocalWrite | rdma::kRemoteRead | rdma::kRemoteWrite)
                              .value();
        command.data = nvme::SglDescriptor::keyed(reinterpret_cast<std::uintptr_t>(data.data()),
                                                  static_cast<std::uint32_t>(data.size()), keys.rkey);
        command.data.type = nvme::kSglKeyedInvalidate;
        post(command);
        const nvme::Completion answer = answer_to(command);
        if (nvme::ok(answer.result())) {
            EXPECT_EQ(queue_->last_invalidated_key(), keys.rkey);
        }
        EXPECT_TRUE(nic_.deregister_memory(keys).ok());
        return answer;
    }
    nvme::Completion inline_write(nvme::Command command, std::span<const std::byte> data) {
        command.data = nvme::SglDescriptor::unkeyed(nvme::kSglDataBlockOffset, 0,
                                                    static_cast<std::uint32_t>(data.size()));
        post(command, data);
        return answer_to(command);
    }

  private:
    nvme::Completion answer_to(const nvme::Command& command) {
        const nvme::Completion answer = wait();
        EXPECT_EQ(answer.command_id, command.command_id);
        return answer;
    }
    rdma::Nic& nic_;
    std::unique_ptr<HostQueue> queue_;
    std::uint16_t next_id_ = 0x1000;
};

/// A controller as the kernel makes one: Connect, CAP, CC, CSTS, VS, Identify.
class StockHost {
  public:
    StockHost(rdma::Nic& nic, StockOptions options)
        : options_(std::move(options)), admin_(nic, kStockAdminEntries) {}

    /// The status of Connect (all else is expected to go well).
    nvme::Completion connect_admin() {
        transport(admin_, 0, kStockAdminEntries, 0);
        ConnectRequest request = connect_request(0, kStockAdminEntries);
        request.controller_id = nvme::kAnyController;
        request.keep_alive_ms = options_.keep_alive_s * 1000;
        const nvme::Completion answer = send_connect(admin_, request, false);
        controller_id_ = static_cast<std::uint16_t>(answer.dw0);
        return answer;
    }
    void enable() {
        cap_ = property_get(nvme::Property::kCap, true);
        const auto cap = nvme::Capabilities::decode(cap_);
        entries_ = std::min<std::uint32_t>(options_.queue_size, cap.max_queue_entries + 1u);
        EXPECT_EQ(cap.page_size_min, 0) << "4 KiB pages";
        nvme::Configuration cc{.sq_entry_log2 = 6, .cq_entry_log2 = 4};
        property_set(nvme::Property::kCc, cc.encode());  // all but the bit, then the bit
        EXPECT_EQ(property_get(nvme::Property::kCc, false), cc.encode());
        EXPECT_FALSE(csts().ready);
        cc.enable = true;
        property_set(nvme::Property::kCc, cc.encode());
        EXPECT_TRUE(csts().ready);
        cc_ = cc;
        vs_ = static_cast<std::uint32_t>(property_get(nvme::Property::kVs, false));
    }
    /// CC.SHN normal, and until CSTS says complete.
    void shut_down() {
        cc_.shutdown = 1;
        property_set(nvme::Property::kCc, cc_.encode());
        EXPECT_TRUE(eventually([this] { return csts().shutdown == 2; })) << "nvme_shutdown_ctrl polls for it";
    }
    nvme::Completion connect_io(StockQueue& queue, std::uint16_t id) {
        transport(queue, id, entries_, controller_id_);
        return send_connect(queue, connect_request(id, entries_), inline_bytes_ >= sizeof(nvme::ConnectData));
    }
    nvme::ControllerStatus csts() {
        return nvme::ControllerStatus::decode(
            static_cast<std::uint32_t>(property_get(nvme::Property::kCsts, false)));
    }
    std::uint64_t property_get(nvme::Property property, bool eight) {
        nvme::PropertyCommand wire{};
        wire.type = static_cast<std::uint8_t>(nvme::FabricsType::kPropertyGet);
        wire.attributes = eight ? 1 : 0;
        wire.offset = static_cast<std::uint32_t>(property);
        const nvme::Completion answer = fabrics(wire);
        EXPECT_EQ(answer.result(), nvme::Status::kSuccess);
        return answer.dw0 | (std::uint64_t{answer.dw1} << 32);
    }
    nvme::Completion fabrics(nvme::PropertyCommand wire) {
        wire.opcode = 0x7F;
        wire.flags = nvme::kFlagsSgl;
        nvme::Command command;
        std::memcpy(&command, &wire, sizeof command);
        return admin_.keyed(command, {});
    }
    void property_set(nvme::Property property, std::uint64_t value) {
        nvme::PropertyCommand wire{};
        wire.type = static_cast<std::uint8_t>(nvme::FabricsType::kPropertySet);
        wire.offset = static_cast<std::uint32_t>(property);
        wire.value = value;
        EXPECT_EQ(fabrics(wire).result(), nvme::Status::kSuccess);
    }
    nvme::Completion identify(std::uint8_t cns, std::uint32_t nsid, std::span<std::byte> data,
                              std::uint8_t csi = 0) {
        nvme::Command c = stock_command(0x06);
        c.namespace_id = nsid;
        c.cdw10 = cns;
        c.cdw11 = std::uint32_t{csi} << 24;
        return admin_.keyed(c, data);
    }
    nvme::Completion get_log(std::uint8_t page, std::uint32_t nsid, std::span<std::byte> data,
                             std::uint64_t offset = 0) {
        nvme::Command c = stock_command(0x02);
        const auto dwords = static_cast<std::uint32_t>(data.size() / 4 - 1);
        c.namespace_id = nsid;
        c.cdw10 = page | (dwords << 16);
        c.cdw11 = dwords >> 16;
        c.cdw12 = static_cast<std::uint32_t>(offset);
        c.cdw13 = static_cast<std::uint32_t>(offset >> 32);
        return admin_.keyed(c, data);
    }
    nvme::Completion feature(bool set, nvme::Feature id, std::uint32_t cdw11,
                             std::span<std::byte> data = {}) {
        nvme::Command c = stock_command(set ? 0x09 : 0x0A);
        c.cdw10 = static_cast<std::uint32_t>(id);
        c.cdw11 = cdw11;
        return admin_.keyed(c, data);
    }
    /// After Identify Controller, as nvme_rdma_setup_ctrl does.
    void learn(const nvme::IdentifyController& id) {
        inline_bytes_ = (id.sgls & nvme::kSglsOffset) != 0 ? id.ioccsz * 16 - 64 : 0;
        entries_ = std::min<std::uint32_t>(entries_, id.maxcmd);
    }
    StockQueue& admin() { return admin_; }
    [[nodiscard]] std::uint16_t controller_id() const { return controller_id_; }
    [[nodiscard]] std::uint32_t vs() const { return vs_; }
    [[nodiscard]] std::uint64_t cap() const { return cap_; }
    [[nodiscard]] std::uint32_t entries() const { return entries_; }
    [[nodiscard]] std::uint32_t inline_bytes() const { return inline_bytes_; }

  private:
    ConnectRequest connect_request(std::uint16_t id, std::uint32_t entries) const {
        ConnectRequest r;
        r.queue_id = id;
        r.sq_size = static_cast<std::uint16_t>(entries - 1);
        r.attributes = options_.disable_sq_flow ? nvme::kConnectDisableSqFlow : std::uint8_t{0};
        r.host_id = {0x1b, 0x4e, 0x28, 0xba};
        r.controller_id = controller_id_;
        r.subsystem_nqn = options_.subsystem_nqn;
        r.host_nqn = options_.host_nqn;
        return r;
    }
    void transport(StockQueue& queue, std::uint16_t id, std::uint32_t entries, std::uint16_t controller) {
        const auto accepted = queue.queue().connect(options_.peer, options_.service,
                                                    transport_request_data(id, entries, controller), 100'000);
        ASSERT_TRUE(accepted.ok()) << accepted.error().message;
        EXPECT_TRUE(check_transport_accept(*accepted, entries).ok());
    }
    nvme::Completion send_connect(StockQueue& queue, const ConnectRequest& request, bool in_capsule) {
        nvme::ConnectData data = connect_data(request);
        const auto bytes = std::as_writable_bytes(std::span(&data, 1));
        return in_capsule ? queue.inline_write(connect_command(request), bytes)
                          : queue.keyed(connect_command(request), bytes);
    }
    const StockOptions options_;
    StockQueue admin_;
    std::uint16_t controller_id_ = 0;
    std::uint64_t cap_ = 0;
    std::uint32_t vs_ = 0;
    std::uint32_t entries_ = kStockAdminEntries;  // until enable() has read CAP
    std::uint32_t inline_bytes_ = 0;
    nvme::Configuration cc_;
};

/// Of one record.
template <class T>
std::span<std::byte> writable(T& record) {
    return std::as_writable_bytes(std::span<T, 1>(&record, 1));
}

}  // namespace gnstor::nvmf
