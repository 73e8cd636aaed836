// demo.cpp: the demo's steps. Each prints what it did and fails loudly.
#include "demo.hpp"

#include <gnstor/base/units.hpp>

#include "gnor/channel.hpp"
#include "lanes.hpp"
#include "oracle.hpp"
#include "report.hpp"
#include "site.hpp"

#include <poll.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <set>
#include <thread>

namespace gnstor::demo {

namespace fs = std::filesystem;

void heading(int number, const std::string& text) {
    std::printf("\n%d. %s\n", number, text.c_str());
    std::fflush(stdout);
}

namespace {

constexpr char kVolume[] = "archive";
constexpr std::uint32_t kStepsMin = 32;  ///< kernels that store, where the process may be killed
constexpr int kKillWaitMs = 60'000;

/// The demo: what it carries from step to step. Members are destroyed from the last to the first.
class Demo {
  public:
    Demo(const Options& options, std::unique_ptr<Lanes> lanes, simt::LanesKind kind, fs::path work,
         const Archive& archive, const Life& life)
        : options_(options),
          lanes_(std::move(lanes)),
          kind_(kind),
          work_(std::move(work)),
          archive_(archive),
          life_(life),
          blocks_(static_cast<std::uint32_t>((archive.bytes + nvme::kBlockBytes - 1) / nvme::kBlockBytes)) {}

    /// An array that is not the demo's own is left as it was.
    ~Demo() {
        if (!stored_elsewhere_) return;
        volume_.reset();
        if (auto gone = client_->control().delete_volume(client_->identity().id, volume_name_); !gone.ok())
            std::fprintf(stderr,
                         "demo: the demo's volume '%s' could not be deleted and remains in the array: %s\n",
                         volume_name_.c_str(), gone.error().message.c_str());
    }
    Demo(const Demo&) = delete;
    Demo& operator=(const Demo&) = delete;

    Result<bool> run() {
        GN_TRY(open_array());
        GN_TRY(store());
        if (options_.corrupt) GN_TRY(corrupt_a_store());
        GN_TRY(look_through());
        if (!options_.corrupt) GN_TRY(take_one_read_apart());
        GN_TRY(compare_with_file());
        print_closing();
        return failures_ == 0;
    }

  private:
    Result<void> open_array() {
        const auto begin = std::chrono::steady_clock::now();
        if (options_.remote.wanted) {
            GN_ASSIGN(site_, make_remote_site(options_));
            if (!site_->alone()) volume_name_ = fmt::format("demo-{}", ::getpid());
        } else {
            GN_ASSIGN(site_, make_embedded_site(options_, work_, archive_, kind_ == simt::LanesKind::kGpu));
        }
        if (life_.number > 1)
            std::printf("   process %u: its SSDs recovered in %.3f s\n", life_.number, seconds_since(begin));
        if (options_.remote.wanted) std::printf("   wire: %s\n", site_->array().wire().c_str());
        return connect();
    }

    Result<void> connect() {
        client::ClientOptions client;
        client.name = "demo";
        client.lanes = kind_;
        client.channels = lanes_->channels();
        GN_ASSIGN(client_, site_->array().connect(client));
        return {};
    }

    Result<void> store() {
        if (life_.number == 1)
            heading(2, fmt::format("Store: lanes write a volume of {} replicas on {} SSDs", kReplicas,
                                   client_->array().ssds.size()));
        client::CreateVolume request;
        request.name = volume_name_;
        request.capacity_bytes = archive_.bytes;
        request.replicas = kReplicas;
        // An earlier life may have come so far.
        if (auto made = client_->create(request); !made.ok() && made.error().code != Errc::kExists)
            return made.error();
        stored_elsewhere_ = !site_->alone();
        GN_ASSIGN(volume_, client_->open(volume_name_, client::OpenMode::kWrite));
        GN_ASSIGN(client::Buffer source, load_archive());
        if (life_.stored_blocks != 0) GN_TRY(read_back(source));
        if (life_.stored_blocks == blocks_) return {};
        GN_ASSIGN(const std::vector<client::SsdCounts> before, client_->ssd_counts());
        GN_ASSIGN(const std::uint64_t posted_before, posted(&gnor::Counters::writes));
        GN_ASSIGN(const StoreOutcome outcome, store_the_rest(source));
        GN_TRY(source.release());
        std::printf("   %s\n   latency of one piece: %s\n",
                    rate(outcome.totals.commands, outcome.totals.bytes, outcome.seconds).c_str(),
                    percentiles(outcome.latency_ns).c_str());
        GN_ASSIGN(const std::uint64_t posted_now, posted(&gnor::Counters::writes));
        GN_ASSIGN(const std::vector<client::SsdCounts> after, client_->ssd_counts());
        check_counts(fmt::format("writes posted by lanes, {} replicas", kReplicas),
                     posted_now - posted_before, executed(before, after, &client::SsdCounts::writes));
        GN_TRY(volume_->set_byte_length(archive_.bytes));
        return {};
    }

    /// In one kernel, or, if the process may be killed at any moment, in several: what a kernel has stored is
    /// told before the next one begins.
    Result<StoreOutcome> store_the_rest(const client::Buffer& source) {
        const std::uint32_t chunk = 1u << volume_->record().geometry.chunk_shift;
        const std::uint32_t step =
            options_.kill ? (blocks_ / kStepsMin / chunk + 1) * chunk : blocks_ - life_.stored_blocks;
        StoreOutcome all;
        for (std::uint32_t first = life_.stored_blocks; first < blocks_; first += step) {
            const std::uint32_t count = std::min(step, blocks_ - first);
            GN_ASSIGN(const StoreOutcome outcome, lanes_->store(*client_, *volume_, source, first, count));
            GN_TRY(check_totals("writing", outcome.totals));
            all.seconds += outcome.seconds;
            all.totals.commands += outcome.totals.commands;
            all.totals.bytes += outcome.totals.bytes;
            all.latency_ns.insert(all.latency_ns.end(), outcome.latency_ns.begin(), outcome.latency_ns.end());
            tell(Progress::kStored, first + count);
        }
        return all;
    }

    /// What earlier lives were told is stored is there, byte by byte.
    Result<void> read_back(const client::Buffer& source) {
        std::vector<std::byte> found(std::size_t{life_.stored_blocks} * nvme::kBlockBytes);
        GN_TRY(volume_->read(0, found));
        std::uint32_t wrong = 0;
        for (std::size_t at = 0; at < found.size(); at += nvme::kBlockBytes)
            wrong += std::memcmp(found.data() + at, source.data() + at, nvme::kBlockBytes) != 0 ? 1 : 0;
        check(wrong == 0,
              fmt::format("{} blocks were acknowledged to killed processes and read back: {} differ",
                          life_.stored_blocks, wrong));
        return {};
    }

    void tell(Progress::Kind kind, std::uint32_t blocks) const {
        const Progress progress{kind, blocks};
        // Nobody listens any more only if the process that started this one is gone: then it does not matter.
        if (life_.progress >= 0) (void)!::write(life_.progress, &progress, sizeof progress);
    }

    /// Waits until the process that listens for progress kills this one. Returns if that process has ended
    /// (its end of the pipe is closed), or after a time limit.
    void await_kill() const {
        pollfd listener{life_.progress, 0, 0};
        while (::poll(&listener, 1, kKillWaitMs) < 0 && errno == EINTR) {
        }
    }

    Result<client::Buffer> load_archive() {
        GN_ASSIGN(client::Buffer memory, client_->map_buffer(std::size_t{blocks_} * nvme::kBlockBytes));
        std::ifstream file(archive_.path, std::ios::binary);
        file.read(reinterpret_cast<char*>(memory.data()), static_cast<std::streamsize>(archive_.bytes));
        if (file.gcount() != static_cast<std::streamsize>(archive_.bytes))
            return error(Errc::kIo, "the file {} became shorter while the demo read it",
                         archive_.path.string());
        return Result<client::Buffer>(std::move(memory));
    }

    Result<void> corrupt_a_store() {
        std::printf("   --corrupt: stopping the array and flipping one byte in one SSD's store\n");
        const nvme::VolumeId id = volume_->record().geometry.volume;
        // The SSD that serves reads of the block: damage to the other replica would not be met by a reader.
        const std::uint32_t slot =
            placement::place(client_->array().map, volume_->record().geometry, damaged_chunk()).slot[0];
        volume_.reset();
        client_.reset();
        GN_ASSIGN(const std::string what, site_->flip_one_byte(slot, id, blocks_ / 2));
        std::printf("   %s\n", what.c_str());
        GN_TRY(connect());
        GN_ASSIGN(volume_, client_->open(volume_name_, client::OpenMode::kRead));
        return {};
    }

    Result<void> look_through() {
        std::string why_not;
        GN_ASSIGN(const bool away, site_->suspend_daemon(why_not));
        heading(3, fmt::format("Grep: a kernel looks for \"{}\" and checks every block{}", options_.pattern,
                               away ? ", with the daemon suspended" : ""));
        GN_ASSIGN(const std::vector<client::SsdCounts> before, client_->ssd_counts());
        GN_ASSIGN(const std::uint64_t posted_before, posted(&gnor::Counters::reads));
        const Hardware hardware_before = site_->hardware();
        tell(Progress::kLooking, blocks_);
        GN_ASSIGN(kernel_, lanes_->grep(*client_, *volume_, grep_request()));
        if (life_.doomed) await_kill();
        hardware_ = site_->hardware();
        hardware_.cpu_seconds -= hardware_before.cpu_seconds;
        GN_ASSIGN(after_grep_, client_->ssd_counts());
        GN_TRY(resume_daemon(away, why_not));
        GN_TRY(check_totals("reading", kernel_.totals));
        std::printf("   %s\n   latency of one piece: %s\n",
                    rate(kernel_.totals.commands, kernel_.totals.bytes, kernel_.seconds).c_str(),
                    percentiles(kernel_.latency_ns).c_str());
        std::printf("   load per SSD\n%s", load_by_ssd(before, after_grep_).c_str());
        GN_ASSIGN(const std::uint64_t posted_now, posted(&gnor::Counters::reads));
        check_counts("reads posted by lanes", posted_now - posted_before,
                     executed(before, after_grep_, &client::SsdCounts::reads));
        check_media(before);
        for (std::size_t i = 0; i < before.size(); ++i)
            grep_reads_ += fmt::format(" {}", after_grep_[i].reads - before[i].reads);
        return compare_with_oracle();
    }

    Result<void> resume_daemon(bool away, const std::string& why_not) {
        if (!away) {
            std::printf("   daemon suspended: no, %s\n", why_not.c_str());
            return {};
        }
        GN_ASSIGN(const double seconds, site_->resume_daemon());
        const std::string how_long =
            seconds >= kernel_.seconds
                ? "from before the kernel until after it"
                : fmt::format(
                      "for the first {:.1f} s; SSDs of nodes serve without the daemon for at most 10 s",
                      seconds);
        std::printf("   daemon suspended: yes, %s\n", how_long.c_str());
        return {};
    }

    Result<void> compare_with_oracle() {
        GN_ASSIGN(const std::vector<std::uint64_t> expected, grep_offsets(archive_.path, options_.pattern));
        const std::vector<std::uint64_t> found = without_overlaps(kernel_.matches, options_.pattern.size());
        check(found == expected,
              fmt::format("{} matches of the kernel, {} of grep -obUaF: {}", found.size(), expected.size(),
                          found == expected ? "the same offsets" : "DIFFERENT offsets"));
        GN_ASSIGN(const std::vector<std::uint32_t> crcs, block_crcs(archive_.path));
        std::size_t wrong = crcs.size() == kernel_.crcs.size() ? 0 : 1;
        for (std::size_t i = 0; i < std::min(crcs.size(), kernel_.crcs.size()); ++i)
            wrong += crcs[i] != kernel_.crcs[i] ? 1 : 0;
        check(wrong == 0,
              fmt::format("{} block CRC-32Cs of the kernel against the CPU's on the original: {} differ",
                          crcs.size(), wrong));
        print_matches(found);
        return {};
    }

    void print_matches(const std::vector<std::uint64_t>& found) const {
        std::set<const Member*> members;
        for (const std::uint64_t offset : found) members.insert(archive_.member_at(offset));
        members.erase(nullptr);
        std::printf("   matches lie in %zu files; the first of some of them:\n", members.size());
        const Member* last = nullptr;
        int shown = 0;
        for (const std::uint64_t offset : found) {
            const Member* m = archive_.member_at(offset);
            if (m == nullptr || m == last || shown == 6) continue;
            last = m;
            ++shown;
            std::printf("     %12llu  %s + %llu\n", static_cast<unsigned long long>(offset), m->name.c_str(),
                        static_cast<unsigned long long>(offset - m->offset));
        }
    }

    Result<void> take_one_read_apart() {
        heading(4, "One read, byte by byte");
        client::ClientOptions options;
        options.name = "demo";
        options.lanes = kind_;
        options.channels = 1;
        options.scatter_to_cqe = true;
        GN_ASSIGN(const std::unique_ptr<client::Client> tracer, site_->array().connect(options));
        GN_ASSIGN(const std::unique_ptr<client::Volume> volume,
                  tracer->open(volume_name_, client::OpenMode::kRead));
        GN_ASSIGN(const ReadTrace trace, lanes_->trace(*tracer, *volume, blocks_ / 2));
        std::printf("%s", dissect(trace).c_str());
        return {};
    }

    Result<void> compare_with_file() {
        heading(5, kind_ == simt::LanesKind::kGpu ? "The same job by pread and cudaMemcpy"
                                                  : "The same job by pread");
        GN_ASSIGN(const GrepOutcome file, lanes_->grep_file(archive_.path, grep_request()));
        GN_TRY(check_totals("reading the file", file.totals));
        check(file.matches == kernel_.matches && file.crcs == kernel_.crcs,
              "the same matches and CRCs as from the array");
        const double ratio = file.seconds / kernel_.seconds;
        std::printf("   from the file (in the page cache, no replication, no network): %s\n",
                    rate(file.totals.commands, file.totals.bytes, file.seconds).c_str());
        std::printf("   from the array: %.3f s. The array is %.2f times %s than the file here.\n",
                    kernel_.seconds, ratio >= 1 ? ratio : 1 / ratio, ratio >= 1 ? "faster" : "slower");
        return {};
    }

    void print_closing() const {
        utsname system{};
        uname(&system);
        std::vector<std::string> lines;
        lines.push_back(fmt::format("lanes        {}", lanes_->describe()));
        lines.push_back(
            fmt::format("real         NVMe commands, capsules, keyed SGLs, mlx5 entries and completions, "
                        "placement, permission"));
        const bool packets = site_->array().wire().starts_with("udp");
        lines.push_back(
            fmt::format("             checks, block map, CRCs, leases, two replicas of every block{}",
                        packets ? ", RoCEv2" : ""));
        if (options_.remote.wanted) lines.push_back(fmt::format("wire         {}", site_->array().wire()));
        lines.push_back(
            fmt::format("emulated     {}{}", site_->emulated(),
                        hardware_.who.empty()
                            ? std::string()
                            : fmt::format(": {:.2f} s of CPU of {}", hardware_.cpu_seconds, hardware_.who)));
        lines.push_back("not tested   " + site_->not_tested());
        lines.push_back(fmt::format("kernel       {}",
                                    rate(kernel_.totals.commands, kernel_.totals.bytes, kernel_.seconds)));
        lines.push_back(fmt::format("latency      {}", percentiles(kernel_.latency_ns)));
        lines.push_back("load         reads by SSD slot:" + grep_reads_);
        lines.push_back(fmt::format("machine      {} cores, {} {}", std::thread::hardware_concurrency(),
                                    system.sysname, system.release));
        if (!life_.kills.empty()) lines.push_back(fmt::format("killed       {}", life_.kills));
        lines.push_back(failures_ == 0 ? "result       every answer agrees"
                                       : fmt::format("result       {} CHECK{} FAILED", failures_,
                                                     failures_ == 1 ? "" : "S"));
        std::printf("\n%s", box("what this was", lines).c_str());
    }

    // ---- checks

    [[nodiscard]] std::uint32_t damaged_chunk() const {
        return (blocks_ / 2) >> volume_->record().geometry.chunk_shift;
    }
    void check(bool holds, const std::string& what) {
        std::printf("   [%s] %s\n", holds ? "ok" : "FAILED", what.c_str());
        if (!holds) ++failures_;
    }
    /// Where others work too, SSDs count theirs as well.
    void check_counts(const std::string& what, std::uint64_t posted_commands, std::uint64_t done) {
        const bool others = !site_->alone() && done > posted_commands;
        check(posted_commands == done || others,
              fmt::format("{}, counted by channels: {}; executed, counted by SSDs: {}{}", what,
                          posted_commands, done, others ? " (with those of other clients)" : ""));
    }
    /// Commands that lanes posted on all channels so far, as these counted them: one a replica, and one more
    /// where another replica had to serve.
    [[nodiscard]] Result<std::uint64_t> posted(std::uint64_t gnor::Counters::*counter) const {
        std::uint64_t sum = 0;
        for (std::uint32_t i = 0; i < client_->channel_count(); ++i) {
            GN_ASSIGN(const gnor::Counters counters, client_->channel(i).counters());
            sum += counters.*counter;
        }
        return sum;
    }
    /// A drive that found a damaged page says so, even though another replica served the read.
    void check_media(const std::vector<client::SsdCounts>& before) {
        for (std::size_t i = 0; i < before.size(); ++i) {
            const std::uint64_t found = after_grep_[i].media_errors - before[i].media_errors;
            if (found != 0)
                check(false, fmt::format("SSD in slot {} found {} damaged page{} by its CRC and answered "
                                         "Unrecovered Read Error; the other replica "
                                         "served the read",
                                         i, found, found == 1 ? "" : "s"));
        }
    }
    static Result<void> check_totals(const char* what, const Totals& totals) {
        if (totals.failures == 0) return {};
        return error(Errc::kIo, "{} failed {} times, the first time at block {}: {}", what, totals.failures,
                     totals.first_failed_block,
                     nvme::status_name(static_cast<nvme::Status>(totals.first_failed_status)));
    }
    static std::uint64_t executed(const std::vector<client::SsdCounts>& before,
                                  const std::vector<client::SsdCounts>& after,
                                  std::uint64_t client::SsdCounts::*counter) {
        std::uint64_t sum = 0;
        for (std::size_t i = 0; i < after.size(); ++i) sum += after[i].*counter - before[i].*counter;
        return sum;
    }
    [[nodiscard]] GrepRequest grep_request() const {
        GrepRequest request{};
        std::copy(options_.pattern.begin(), options_.pattern.end(), request.pattern.bytes);
        request.pattern.length = static_cast<std::uint32_t>(options_.pattern.size());
        request.input_bytes = archive_.bytes;
        request.seed = options_.seed;
        return request;
    }

    const Options& options_;
    const std::unique_ptr<Lanes> lanes_;
    const simt::LanesKind kind_;
    const fs::path work_;
    const Archive& archive_;
    const Life& life_;
    const std::uint32_t blocks_;
    std::uint32_t failures_ = 0;
    std::string volume_name_ = kVolume;
    bool stored_elsewhere_ = false;  ///< there is a volume in an array of others
    std::unique_ptr<Site> site_;
    std::unique_ptr<client::Client> client_;
    std::unique_ptr<client::Volume> volume_;
    GrepOutcome kernel_;
    std::vector<client::SsdCounts> after_grep_;
    std::string grep_reads_;  ///< by slot, for the closing box
    Hardware hardware_;       ///< while the kernel looked
};

}  // namespace

Result<bool> run_demo(const Options& options, const fs::path& work, const Archive& archive,
                      const Life& life) {
    GN_ASSIGN(const simt::LanesKind kind, simt::parse_lanes(options.lanes));
    GN_TRY(simt::check_lanes(kind));
    std::unique_ptr<Lanes> lanes = kind == simt::LanesKind::kGpu ? make_gpu_lanes() : make_cpu_lanes();
    if (!lanes)
        return error(Errc::kUnsupported, "this build has no GPU lanes; build with nvcc, or use --lanes cpu");
    if (life.number == 1) std::printf("\n   on %s\n", lanes->describe().c_str());
    Demo demo(options, std::move(lanes), kind, work, archive, life);
    return demo.run();
}

}  // namespace gnstor::demo
