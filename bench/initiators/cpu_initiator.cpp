// cpu_initiator.cpp: threads, streams and memory of CPU initiators; one run of them.
#include "bench/initiators/cpu_initiator.hpp"

#include <gnstor/simt/atomic.hpp>

#include "bench/cpu_meter.hpp"
#include "bench/initiators/bed.hpp"

#include <algorithm>
#include <thread>

namespace gnstor::bench {
namespace {

constexpr std::uint32_t kOpenLoopSamples = 1u << 16;  // of latency, a stream; beyond that a uniform choice

/// Where a stream is: whose, on which thread, and which part of its client's order it takes.
struct Place {
    std::uint32_t client, thread, member, members;
};

/// As many threads as wanted: clients take turns on them, or share them. A client has no more streams than
/// requests in flight.
std::vector<Place> place_streams(std::uint32_t clients, std::uint32_t threads, std::uint32_t depth) {
    std::vector<Place> places;
    const std::uint32_t streams = std::clamp(threads, clients, clients * depth);
    for (std::uint32_t i = 0; i < streams; ++i) {
        const std::uint32_t client = i % clients;
        const std::uint32_t members = streams / clients + (client < streams % clients ? 1 : 0);
        places.push_back(Place{client, i % threads, i / clients, members});
    }
    return places;
}

class CpuInitiator final : public Initiator {
  public:
    CpuInitiator(Bed& bed, const InitiatorOptions& options, std::unique_ptr<LoadLanes> lanes)
        : bed_(bed),
          options_(options),
          lanes_(std::move(lanes)),
          stride_(std::max(options.bytes_max, nvme::kBlockBytes)) {
        threads_ = options.threads;
        places_ = place_streams(options.clients, threads_, options.depth);
    }
    ~CpuInitiator() override {
        ports_.clear();
        factory_.reset();
        // Only now nobody writes there any more.
        if (registered_)
            if (auto done = bed_.array().host_nic().deregister_memory(keys_); !done.ok())
                landing_.leave_mapped();
    }

    Result<void> open() {
        const std::size_t each = std::size_t{options_.depth} * stride_;
        GN_ASSIGN(landing_, simt::PinnedMemory::map(places_.size() * each, options_.lanes));
        GN_ASSIGN(keys_, bed_.array().host_nic().register_memory(
                             landing_.data(), landing_.size(),
                             rdma::kLocalWrite | rdma::kRemoteRead | rdma::kRemoteWrite));
        registered_ = true;
        if (copies()) {
            GN_ASSIGN(lane_memory_, simt::DeviceMemory::allocate(places_.size() * each, options_.lanes));
        }
        boxes_a_stream_ = lanes_->mailboxes_a_stream();
        GN_ASSIGN(mail_, simt::PinnedMemory::map(places_.size() * boxes_a_stream_ * sizeof(Mailbox),
                                                 options_.lanes));
        GN_ASSIGN(written_, simt::PinnedMemory::map(bitmap_words() * 4 * options_.clients, options_.lanes));
        if (is_central(options_.path)) {
            GN_ASSIGN(factory_, make_central_ports(bed_, options_, keys_));
        } else {
            GN_ASSIGN(factory_, make_direct_ports(bed_, options_, keys_));
        }
        for (const Place& place : places_) {
            GN_ASSIGN(std::unique_ptr<Port> port, factory_->make(place.client));
            ports_.push_back(std::move(port));
        }
        return {};
    }

    [[nodiscard]] std::string describe() const override {
        return fmt::format("{}: {} CPU thread{} initiate{} requests, {} in flight per client, {}{}",
                           path_name(options_.path), threads_, threads_ == 1 ? "" : "s",
                           threads_ == 1 ? "s" : "", options_.depth,
                           copies() ? "data is copied between host memory and the lanes' memory"
                                    : "data is transferred directly to and from the lanes' memory",
                           factory_->describe());
    }
    [[nodiscard]] std::uint32_t streams() const override {
        return static_cast<std::uint32_t>(places_.size());
    }
    [[nodiscard]] std::uint64_t members(std::uint32_t /*bytes*/) const override { return places_.size(); }

    Result<Outcome> run(const Load& load) override {
        if (load.depth > options_.depth || load.bytes > stride_)
            return error(Errc::kInvalidArgument,
                         "the run asks for {} requests in flight of {} bytes, but the initiator was opened "
                         "for at most {} of {} bytes",
                         load.depth, load.bytes, options_.depth, stride_);
        Plan plan{};
        plan.verify = load.verify;
        plan.order_seed = load.order_seed ^ 0x5EED;
        plan.duration_ns = load.duration_ns;
        plan.quota = load.quota;
        plan.interval_ps = load.interval_ps;
        // In a closed loop the lanes take latencies.
        plan.samples_a_lane = load.interval_ps != 0 ? kOpenLoopSamples : 0;
        std::vector<LaneResult> results(places_.size());
        std::vector<std::uint32_t> samples(places_.size() * plan.samples_a_lane);
        plan.results = results.data();
        plan.samples = samples.data();

        GN_TRY(factory_->start());
        GN_ASSIGN(std::unique_ptr<Consumers> consumers, lanes_->start_consumers(mailboxes(), expected(load)));
        std::vector<std::unique_ptr<Copier>> copiers(places_.size());
        for (std::size_t i = 0; copies() && i < places_.size(); ++i) {
            GN_ASSIGN(copiers[i], lanes_->make_copier());
        }
        std::vector<std::unique_ptr<CpuStream>> streams;
        for (std::size_t i = 0; i < places_.size(); ++i)
            streams.push_back(
                std::make_unique<CpuStream>(parts(i, load.depth, copiers[i].get()), load, plan));
        std::uint64_t sent_before = 0, sent_after = 0;
        for (const auto& port : ports_) sent_before += port->commands();
        const double cpu_seconds = drive(streams);
        for (std::size_t i = 0; i < places_.size() * boxes_a_stream_; ++i)
            // Pairs with the acquire in ConsumerJob::is_stopped.
            simt::store_release<simt::Scope::kSystem>(&mailboxes()[i].stop, 1u);
        Outcome out;
        const auto mail = consumers->finish(out.latency_ns);
        GN_TRY(factory_->stop());
        for (std::size_t i = 0; i < places_.size() * boxes_a_stream_; ++i)
            simt::store_release<simt::Scope::kSystem>(&mailboxes()[i].stop, 0u);
        GN_ASSIGN(const MailResult seen, mail);
        for (const auto& copier : copiers)
            if (copier != nullptr) GN_TRY(copier->error());
        for (const auto& port : ports_) sent_after += port->commands();

        sum_up(results, streams, out);
        if (load.interval_ps != 0) out.latency_ns.clear();
        for (std::size_t i = 0; load.interval_ps != 0 && i < places_.size(); ++i) {
            const auto row = samples.begin() + static_cast<std::ptrdiff_t>(i * plan.samples_a_lane);
            out.latency_ns.insert(out.latency_ns.end(), row, row + results[i].samples);
        }
        out.commands = sent_after - sent_before;
        out.initiator_cpu_seconds = cpu_seconds;
        out.checked = seen.checked;
        out.wrong = seen.wrong;
        if (seen.wrong != 0 && out.failures == 0) out.first_offset = seen.first_wrong_offset;
        out.lane_cpu_seconds = static_cast<double>(seen.cpu_ns) / 1e9;
        factory_->add_to(out);
        return out;
    }

  private:
    [[nodiscard]] bool copies() const { return options_.path == PathKind::kBasic; }
    [[nodiscard]] std::size_t bitmap_words() const {
        return (options_.volume_bytes / nvme::kBlockBytes + 31) / 32;
    }
    [[nodiscard]] Mailbox* mailboxes() const { return reinterpret_cast<Mailbox*>(mail_.data()); }
    [[nodiscard]] std::uint32_t* written(std::uint32_t client) const {
        return reinterpret_cast<std::uint32_t*>(written_.data()) + bitmap_words() * client;
    }

    [[nodiscard]] StreamParts parts(std::size_t i, std::uint32_t depth, Copier* copier) const {
        const std::size_t at = i * options_.depth * stride_;
        StreamParts p;
        p.port = ports_[i].get();
        p.copier = copier;
        p.landing = landing_.data() + at;
        p.lane_buffers = copies() ? lane_memory_.lane_as<std::byte>(at) : landing_.lane_data() + at;
        p.stride = stride_;
        const Place& place = places_[i];
        p.depth = std::max(1u, depth / place.members + (place.member < depth % place.members ? 1 : 0));
        p.mailboxes = std::span(mailboxes() + i * boxes_a_stream_, boxes_a_stream_);
        p.written = written(place.client);
        p.member = place.member;
        p.members = place.members;
        p.rank = i;
        return p;
    }

    [[nodiscard]] std::vector<Expected> expected(const Load& load) const {
        std::vector<Expected> all;
        for (const Place& place : places_)
            for (std::uint32_t b = 0; b < boxes_a_stream_; ++b) {
                const auto* const bits = reinterpret_cast<const std::uint32_t*>(written_.lane_data()) +
                                         bitmap_words() * place.client;
                all.push_back(Expected{factory_->volume(place.client), load.contents_seed,
                                       load.pass == Pass::kCompare ? bits : nullptr,
                                       load.pass == Pass::kMeasure});
            }
        return all;
    }

    /// Runs the streams to their end, each on its thread. Returns what the threads took of the CPU.
    double drive(const std::vector<std::unique_ptr<CpuStream>>& streams) const {
        std::vector<double> cpu(threads_);
        {
            std::vector<std::jthread> threads;
            for (std::uint32_t t = 0; t < threads_; ++t)
                threads.emplace_back([this, t, &streams, &cpu] {
                    const double before = thread_cpu_seconds();
                    std::vector<CpuStream*> own;
                    for (std::size_t i = 0; i < streams.size(); ++i)
                        if (places_[i].thread == t) own.push_back(streams[i].get());
                    drive_own(own);
                    cpu[t] = thread_cpu_seconds() - before;
                });
        }
        double all = 0;
        for (const double one : cpu) all += one;
        return all;
    }
    static void drive_own(const std::vector<CpuStream*>& streams) {
        for (CpuStream* s : streams) s->begin();
        std::size_t done = 0;
        for (std::uint32_t backoff = 0; done < streams.size();) {
            bool progress = false;
            for (CpuStream* s : streams) {
                if (s->done()) continue;
                progress = s->step() || progress;
                if (!s->done()) continue;
                s->end();
                ++done;
            }
            if (progress)
                backoff = 0;
            else
                simt::pause(backoff);
        }
    }

    void sum_up(const std::vector<LaneResult>& results,
                const std::vector<std::unique_ptr<CpuStream>>& streams, Outcome& out) const {
        StageTimes all;
        StageSums work{};
        std::uint64_t begin = ~0ull, end = 0;
        for (std::size_t i = 0; i < results.size(); ++i) {
            const LaneResult& r = results[i];
            begin = std::min(begin, r.begin_ns);
            end = std::max(end, r.end_ns);
            add_result(out, r);
            out.reads += streams[i]->reads();
            streams[i]->add_work(work);
            const StageTimes& t = streams[i]->times();
            all.array_ns += t.array_ns, all.array_count += t.array_count;
            all.copy_ns += t.copy_ns, all.copy_count += t.copy_count;
            all.handover_ns += t.handover_ns, all.handover_count += t.handover_count;
        }
        out.seconds = static_cast<double>(end - begin) / 1e9;
        const auto keep = [&out](const char* stage, std::uint64_t ns, std::uint64_t count) {
            if (count != 0) out.stage_us[stage] = static_cast<double>(ns) / static_cast<double>(count) / 1e3;
        };
        keep("array", all.array_ns, all.array_count);
        keep("copy", all.copy_ns, all.copy_count);
        keep("hand-over", all.handover_ns, all.handover_count);
        for (const Stage s : {Stage::kHandOver, Stage::kSubmit, Stage::kPoll, Stage::kCopy, Stage::kIdle})
            if (s != Stage::kCopy || copies())
                out.work_seconds["client_" + stage_name(s)] = work[index_of(s)];
    }

    Bed& bed_;
    const InitiatorOptions options_;
    const std::unique_ptr<LoadLanes> lanes_;
    const std::size_t stride_;
    std::uint32_t threads_ = 1;
    std::uint32_t boxes_a_stream_ = 1;
    std::vector<Place> places_;
    simt::PinnedMemory landing_, mail_, written_;
    simt::DeviceMemory lane_memory_;
    rdma::MemoryKeys keys_{};
    bool registered_ = false;
    std::unique_ptr<PortFactory> factory_;
    std::vector<std::unique_ptr<Port>> ports_;
};

}  // namespace

Result<std::unique_ptr<Initiator>> make_cpu_initiator(Bed& bed, const InitiatorOptions& options,
                                                      std::unique_ptr<LoadLanes> lanes) {
    auto initiator = std::make_unique<CpuInitiator>(bed, options, std::move(lanes));
    GN_TRY(initiator->open());
    return std::unique_ptr<Initiator>(std::move(initiator));
}

}  // namespace gnstor::bench
