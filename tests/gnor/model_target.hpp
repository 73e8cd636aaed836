// model_target.hpp: drives for tests of gnor: offload queue pairs that keep blocks in a map and do as they
// are told.
//
// A ModelDrive parses capsules, checks what must hold of each (client, epoch, map version, SGL, sequence),
// does it, and answers: at once, later, with an error, twice, or never. Everything about one drive runs on
// its NIC poller's thread; the test reads and sets things under the drive's mutex.
#pragma once

#include <gnstor/base/reactor.hpp>
#include <gnstor/nvme/command.hpp>

#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rdma/wire/loop/soft_nic.hpp"

namespace gnstor::test {

/// What to do with one command. `polls`: answer after so many turns of the reactor.
struct Decision {
    enum Kind { kServe, kRefuse, kNever, kTwice, kStaleFirst, kForeignFirst, kBreak, kShort } kind = kServe;
    nvme::Status status = nvme::Status::kSuccess;
    std::uint32_t polls = 0;
    std::uint32_t bytes = 0;        ///< kShort: how much of the answer is sent
    std::uint16_t cid = 0;          ///< kForeignFirst: of another drive's command, which is answered as well
    std::uint64_t result = 0x1234;  ///< DW0 and DW1
};

class ModelDrive final : public rdma::MessageSink, public rdma::Listener, public Poller {
  public:
    using Rule = std::function<Decision(const nvme::Command&, const nvme::IoFields&)>;

    ModelDrive(rdma::SoftNic& nic, Reactor& reactor, std::uint32_t slot)
        : nic_(nic), reactor_(reactor), slot_(slot), service_("drive-" + std::to_string(slot)) {
        nic_.listen(service_, *this).value();
        reactor_.add(*this);
    }
    ~ModelDrive() override {
        nic_.unlisten(service_);
        reactor_.remove(*this);
        for (const auto qp : queue_pairs_) (void)nic_.destroy_queue_pair(qp);
    }
    const std::string& service() const { return service_; }

    // ---- for tests, any thread
    void set_rule(Rule rule) {
        std::lock_guard lock(mutex_);
        rule_ = std::move(rule);
    }
    /// Gives the answers that kNever kept back.
    void answer_kept() {
        reactor_.run([this] {
            std::vector<Held> held;
            {
                std::lock_guard lock(mutex_);
                held.swap(kept_);
            }
            for (auto& h : held) finish(h);
        });
    }
    std::size_t kept() {
        std::lock_guard lock(mutex_);
        return kept_.size();
    }
    std::uint64_t served() {
        std::lock_guard lock(mutex_);
        return served_;
    }
    std::vector<std::string> complaints() {
        std::lock_guard lock(mutex_);
        return complaints_;
    }
    std::vector<std::byte> block(std::uint32_t vba) {
        std::lock_guard lock(mutex_);
        const auto it = blocks_.find(vba);
        return it == blocks_.end() ? std::vector<std::byte>(nvme::kBlockBytes) : it->second;
    }
    void set_block(std::uint32_t vba, std::vector<std::byte> data) {
        std::lock_guard lock(mutex_);
        blocks_[vba] = std::move(data);
    }
    struct Seen {
        std::uint8_t opcode;
        std::uint16_t cid;
        std::uint64_t sequence;
        std::uint32_t block, blocks, map_version;
        bool operator<(const Seen& o) const {
            return std::tie(sequence, block, blocks, opcode, cid, map_version) <
                   std::tie(o.sequence, o.block, o.blocks, o.opcode, o.cid, o.map_version);
        }
        bool operator==(const Seen& o) const { return !(*this < o) && !(o < *this); }
    };
    std::vector<Seen> seen() {
        std::lock_guard lock(mutex_);
        return seen_;
    }
    void forget() {
        std::lock_guard lock(mutex_);
        seen_.clear();
    }
    void expect_client(nvme::ClientId client, nvme::Epoch epoch) {
        std::lock_guard lock(mutex_);
        client_ = client;
        epoch_ = epoch;
    }

    // ---- rdma::Listener
    rdma::ConnectReply on_connect(const rdma::ConnectRequest&) override {
        rdma::ConnectReply reply;
        auto qp = nic_.create_offload_queue_pair(*this);
        if (!qp.ok()) return reply;
        std::lock_guard lock(mutex_);
        queue_pairs_.push_back(*qp);
        reply.accept = true;
        reply.qp = *qp;
        return reply;
    }
    // ---- rdma::MessageSink: the NIC poller's thread
    void on_message(const rdma::InboundMessage& m) override {
        Held held{m.qp, m.token, {}, {}, 0, {}, false};
        std::vector<std::byte> bytes;
        for (std::uint32_t i = 0; i < m.segment_count; ++i)
            bytes.insert(bytes.end(), m.segments[i].data, m.segments[i].data + m.segments[i].bytes);
        if (bytes.size() < sizeof(nvme::Command)) {
            complain("a capsule of " + std::to_string(bytes.size()) + " bytes");
            nic_.release(m.qp, m.token);
            return;
        }
        std::memcpy(&held.command, bytes.data(), sizeof(nvme::Command));
        held.in_capsule.assign(bytes.begin() + sizeof(nvme::Command), bytes.end());
        {
            std::lock_guard lock(mutex_);
            check(held.command, bytes.size());
            if (rule_) held.decision = rule_(held.command, fields_of(held.command));
            held.due = turn_ + held.decision.polls;
            if (held.decision.kind == Decision::kNever) {
                held.released = true;  // the sender's entry may complete: only the answer is kept back
                nic_.release(held.qp, held.token);
                kept_.push_back(std::move(held));
                return;
            }
            if (held.decision.polls != 0) {
                waiting_.push_back(std::move(held));
                return;
            }
        }
        finish(held);
    }
    void on_error(rdma::QpNumber qp) override {
        std::vector<Held> gone;
        {
            std::lock_guard lock(mutex_);
            const auto take = [&](auto& from) {
                for (auto it = from.begin(); it != from.end();)
                    if (it->qp == qp) {
                        gone.push_back(std::move(*it));
                        it = from.erase(it);
                    } else {
                        ++it;
                    }
            };
            take(kept_);
            take(waiting_);
        }
        for (auto& h : gone)
            if (!h.released) nic_.release(h.qp, h.token);
    }
    // ---- Poller: the same thread
    std::uint32_t poll() override {
        std::vector<Held> due;
        {
            std::lock_guard lock(mutex_);
            ++turn_;
            while (!waiting_.empty() && waiting_.front().due <= turn_) {
                due.push_back(std::move(waiting_.front()));
                waiting_.pop_front();
            }
            if (due.empty()) return waiting_.empty() ? 0 : 1;
        }
        for (auto& h : due) finish(h);
        return static_cast<std::uint32_t>(due.size());
    }

    static nvme::IoFields fields_of(const nvme::Command& c) {
        return c.opcode == static_cast<std::uint8_t>(nvme::IoOpcode::kDatasetManagement)
                   ? nvme::decode_trim(c)
                   : nvme::decode_io(c);
    }

  private:
    struct Held {
        rdma::QpNumber qp;
        std::uint64_t token;
        nvme::Command command;
        Decision decision;
        std::uint64_t due;
        std::vector<std::byte> in_capsule;
        bool released = false;
    };

    void complain(std::string what) {
        std::lock_guard lock(mutex_);
        complaints_.push_back(std::move(what));
    }
    void check(const nvme::Command& c, std::size_t bytes) {
        const nvme::IoFields f = fields_of(c);
        const auto opcode = static_cast<nvme::IoOpcode>(c.opcode);
        const auto bad = [&](const std::string& what) {
            complaints_.push_back("slot " + std::to_string(slot_) + ": " + what);
        };
        if (c.opcode == 0x7F) return;
        if ((c.flags & 0xC0) != nvme::kFlagsSgl) bad("PSDT is not SGL");
        if (f.client != client_) bad("client " + std::to_string(f.client));
        if (f.epoch != epoch_) bad("epoch " + std::to_string(f.epoch));
        if (opcode == nvme::IoOpcode::kWrite) {
            const std::uint32_t length = f.blocks * nvme::kBlockBytes;
            if (c.data.length() != length) bad("a write of another length than its SGL");
            if (length <= 4096 && (c.data.is_keyed() || bytes != 64 + length))
                bad("4 KiB not in the capsule");
            if (length > 4096 && (!c.data.is_keyed() || bytes != 64)) bad("more than 4 KiB not by key");
            if (f.sequence == 0) bad("a write without a sequence");
        }
        if (opcode == nvme::IoOpcode::kRead && (!c.data.is_keyed() || bytes != 64)) bad("a read not by key");
        if (opcode == nvme::IoOpcode::kDatasetManagement && bytes != 64 + 16) bad("a trim without its range");
        seen_.push_back({c.opcode, c.command_id, f.sequence, f.block, f.blocks, f.map_version});
    }

    nvme::Status serve(const Held& h) {
        const nvme::IoFields f = fields_of(h.command);
        switch (static_cast<nvme::IoOpcode>(h.command.opcode)) {
            case nvme::IoOpcode::kRead:
                return serve_read(h, f);
            case nvme::IoOpcode::kWrite:
                return serve_write(h, f);
            case nvme::IoOpcode::kWriteZeroes: {
                std::lock_guard lock(mutex_);
                for (std::uint32_t i = 0; i < f.blocks; ++i) blocks_.erase(f.block + i);
                return nvme::Status::kSuccess;
            }
            case nvme::IoOpcode::kDatasetManagement: {
                nvme::DsmRange range;
                if (h.in_capsule.size() < sizeof(range)) return nvme::Status::kDataSglLengthInvalid;
                std::memcpy(&range, h.in_capsule.data(), sizeof(range));
                std::lock_guard lock(mutex_);
                for (std::uint32_t i = 0; i < range.blocks; ++i)
                    blocks_.erase(static_cast<std::uint32_t>(range.start + i));
                return nvme::Status::kSuccess;
            }
            case nvme::IoOpcode::kFlush:
                return nvme::Status::kSuccess;
        }
        return h.command.opcode == 0x7F ? nvme::Status::kSuccess : nvme::Status::kInvalidOpcode;
    }
    nvme::Status serve_read(const Held& h, const nvme::IoFields& f) {
        const std::uint32_t bytes =
            f.sectors != 0 ? f.sectors * nvme::kSectorBytes : f.blocks * nvme::kBlockBytes;
        if (h.command.data.length() != bytes) return nvme::Status::kDataSglLengthInvalid;
        auto window = nic_.open_window(h.qp, h.command.data.address, bytes, h.command.data.key(),
                                       rdma::WindowUse::kWrite);
        if (!window.ok()) {
            complain("a read into memory that the key does not open: " + window.error().message);
            return nvme::Status::kDataTransferError;
        }
        for (std::uint32_t i = 0; i < f.blocks; ++i) {
            const auto data = block(f.block + i);
            const std::byte* from = data.data() + (f.sectors != 0 ? f.first_sector * nvme::kSectorBytes : 0);
            std::memcpy(window->data + std::size_t{i} * nvme::kBlockBytes, from,
                        f.sectors != 0 ? bytes : nvme::kBlockBytes);
        }
        nic_.close_window(h.qp, *window);
        return nvme::Status::kSuccess;
    }
    nvme::Status serve_write(const Held& h, const nvme::IoFields& f) {
        const std::uint32_t bytes = f.blocks * nvme::kBlockBytes;
        std::vector<std::byte> data = h.in_capsule;
        if (h.command.data.is_keyed()) {
            auto window = nic_.open_window(h.qp, h.command.data.address, bytes, h.command.data.key(),
                                           rdma::WindowUse::kRead);
            if (!window.ok()) {
                complain("a write from memory that the key does not open: " + window.error().message);
                return nvme::Status::kDataTransferError;
            }
            data.assign(window->data, window->data + bytes);
            nic_.close_window(h.qp, *window);
        }
        if (data.size() != bytes) return nvme::Status::kDataSglLengthInvalid;
        std::lock_guard lock(mutex_);
        for (std::uint32_t i = 0; i < f.blocks; ++i) {
            const auto at = data.begin() + std::size_t{i} * nvme::kBlockBytes;
            blocks_[f.block + i].assign(at, at + nvme::kBlockBytes);
        }
        return nvme::Status::kSuccess;
    }

    void finish(const Held& h) {
        if (h.decision.kind == Decision::kBreak) {
            nic_.release(h.qp, h.token);
            nic_.fail(h.qp);
            return;
        }
        nvme::Completion answer{};
        answer.command_id = h.command.command_id;
        answer.dw0 = static_cast<std::uint32_t>(h.decision.result);
        answer.dw1 = static_cast<std::uint32_t>(h.decision.result >> 32);
        answer.set_result(h.decision.kind == Decision::kRefuse ? h.decision.status : serve(h));
        {
            std::lock_guard lock(mutex_);
            ++served_;
        }
        if (h.decision.kind == Decision::kStaleFirst) {
            nvme::Completion stale = answer;
            stale.command_id = static_cast<std::uint16_t>(answer.command_id ^ 0x8000u);
            stale.set_result(nvme::Status::kInternalError);
            nic_.send(h.qp, &stale, sizeof(stale));
        }
        if (h.decision.kind == Decision::kForeignFirst) {
            nvme::Completion foreign = answer;
            foreign.command_id = h.decision.cid;
            nic_.send(h.qp, &foreign, sizeof(foreign));
        }
        nic_.send(h.qp, &answer, h.decision.kind == Decision::kShort ? h.decision.bytes : sizeof(answer));
        if (h.decision.kind == Decision::kTwice) nic_.send(h.qp, &answer, sizeof(answer));
        if (!h.released) nic_.release(h.qp, h.token);
    }

    rdma::SoftNic& nic_;
    Reactor& reactor_;
    const std::uint32_t slot_;
    const std::string service_;
    std::mutex mutex_;
    Rule rule_;
    std::map<std::uint32_t, std::vector<std::byte>> blocks_;
    std::deque<Held> waiting_;
    std::vector<Held> kept_;
    std::vector<rdma::QpNumber> queue_pairs_;
    std::vector<std::string> complaints_;
    std::vector<Seen> seen_;
    std::uint64_t turn_ = 0;
    std::uint64_t served_ = 0;
    nvme::ClientId client_ = 0;
    nvme::Epoch epoch_ = 0;
};

}  // namespace gnstor::test
