// host_limits_test.cpp: a host keeps to what a controller says that it can, ours or a stranger's: no command
// beyond MDTS leaves it.
#include "loop_rig.hpp"

namespace gnstor::nvmf {
namespace {

/// A controller of few words: it is enabled, identifies itself, and takes everything else for good.
class FewWords final : public rdma::Listener, public rdma::MessageSink {
  public:
    FewWords(rdma::SoftNic& nic, std::uint8_t mdts, std::uint8_t page_size_min) : nic_(nic) {
        identify_.mdts = mdts;
        identify_.ioccsz = kCapsuleBytesMax / 16;
        identify_.msdbd = 1;
        capabilities_ =
            nvme::Capabilities{.max_queue_entries = 1023, .page_size_min = page_size_min}.encode();
        nic_.listen("few-words", *this).value();
    }
    ~FewWords() override {
        nic_.unlisten("few-words");
        if (qp_ != 0) nic_.destroy_queue_pair(qp_).value();
    }
    rdma::ConnectReply on_connect(const rdma::ConnectRequest&) override {
        qp_ = nic_.create_offload_queue_pair(*this).value();
        return {.accept = true, .reject_reason = 0, .private_data = transport_accept_data(32), .qp = qp_};
    }
    void on_message(const rdma::InboundMessage& message) override {
        ++commands;
        const MessageBytes bytes(std::span(message.segments, message.segment_count));
        nvme::Command command;
        bytes.copy(0, sizeof command, reinterpret_cast<std::byte*>(&command));
        nic_.release(message.qp, message.token);
        nvme::Completion answer{};
        answer.command_id = command.command_id;
        if (command.opcode == static_cast<std::uint8_t>(nvme::AdminOpcode::kFabrics)) {
            property(command, answer);
        } else if (command.opcode == static_cast<std::uint8_t>(nvme::AdminOpcode::kIdentify)) {
            const auto window = nic_.open_window(message.qp, command.data.address, sizeof identify_,
                                                 command.data.key(), rdma::WindowUse::kWrite);
            std::memcpy(window.value().data, &identify_, sizeof identify_);
            nic_.close_window(message.qp, *window);
        }
        nic_.send(message.qp, &answer, sizeof answer);
    }
    void on_error(rdma::QpNumber) override {}

    std::atomic<std::uint32_t> commands{0};

  private:
    void property(const nvme::Command& command, nvme::Completion& answer) const {
        nvme::PropertyCommand wire;
        std::memcpy(&wire, &command, sizeof wire);
        if (command.namespace_id == static_cast<std::uint32_t>(nvme::FabricsType::kConnect)) answer.dw0 = 1;
        if (command.namespace_id != static_cast<std::uint32_t>(nvme::FabricsType::kPropertyGet)) return;
        const bool is_cap = wire.offset == static_cast<std::uint32_t>(nvme::Property::kCap);
        const std::uint64_t value = is_cap ? capabilities_ : nvme::ControllerStatus{.ready = true}.encode();
        answer.dw0 = static_cast<std::uint32_t>(value);
        answer.dw1 = static_cast<std::uint32_t>(value >> 32);
    }

    rdma::SoftNic& nic_;
    rdma::QpNumber qp_ = 0;
    nvme::IdentifyController identify_{};
    std::uint64_t capabilities_ = 0;
};

struct Limit {
    std::uint8_t mdts, page_size_min;
    std::uint64_t bytes;
};

TEST(HostLimits, NoCommandBeyondMdtsIsSent) {
    constexpr std::uint64_t kNone = ~std::uint64_t{0};
    LoopRig rig;
    for (const Limit& limit :
         {Limit{1, 0, 8192}, Limit{0, 0, kNone}, Limit{2, 1, 32768}, Limit{255, 0, kNone}}) {
        FewWords target(rig.node_nic(), limit.mdts, limit.page_size_min);
        HostOptions options = rig.host();
        options.service = "few-words";
        auto host = rig.connect(options);
        ASSERT_TRUE(host.ok()) << host.error().message;
        EXPECT_EQ((*host)->transfer_bytes_max(), limit.bytes);
        std::vector<std::byte> data(kAdminDataBytes);
        nvme::Command command{};
        command.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::kGetLogPage);
        const auto most = std::min<std::uint64_t>(limit.bytes, data.size());
        EXPECT_TRUE((*host)->admin(command, std::span(data).first(most), Direction::kToHost).ok());
        EXPECT_TRUE((*host)->check_transfer(limit.bytes).ok());
        if (limit.bytes == kNone) continue;
        const std::uint32_t sent = target.commands;
        const auto refused = (*host)->admin(command, std::span(data).first(most + 1), Direction::kToHost);
        ASSERT_FALSE(refused.ok());
        EXPECT_EQ(refused.error().code, Errc::kInvalidArgument);
        EXPECT_NE(refused.error().message.find(std::to_string(limit.bytes)), std::string::npos)
            << refused.error().message;
        EXPECT_EQ(target.commands, sent) << "a command beyond MDTS was sent";
        EXPECT_FALSE((*host)->check_transfer(limit.bytes + 1).ok());
        EXPECT_TRUE((*host)->keep_alive().ok()) << "the association must stay alive";
    }
}

TEST(HostLimits, GnstorControllersReportTheirMaximumTransferSize) {
    LoopRig rig;
    auto host = rig.connect(rig.host()).value();
    EXPECT_EQ(host->transfer_bytes_max(), kTransferBytesMax);
    EXPECT_FALSE(host->check_transfer(kTransferBytesMax + 1).ok());
}

}  // namespace
}  // namespace gnstor::nvmf
