// deengine_path.cpp: whole commands through an Engine, from submit() to the answer: on memory flash, and on
// flash that neither copies nor sums; on one core, and on several with an engine each.
//
// Blocks are drawn at random from all that an engine holds. Writes are overwrites, and flash has room for all
// of a run's: what garbage collection costs is not in these figures. A sample is read back and compared.
#include "deengine.hpp"
#include "deengine/front/engine.hpp"
#include "null_flash.hpp"
#include "ssd/flash/memory/memory_flash.hpp"

#include <gnstor/base/hash.hpp>

#include <algorithm>
#include <barrier>
#include <cstring>
#include <thread>

namespace gnstor::bench::deengine_bench {
namespace {

constexpr nvme::ClientId kPathClient = 7;
constexpr nvme::VolumeId kVolume = 3;
constexpr std::uint32_t kChunkShift = 4;
constexpr std::uint32_t kChunkBlocks = 1u << kChunkShift;
constexpr std::uint32_t kSlots = 4;
constexpr std::uint32_t kReplicas = 2;
constexpr std::uint32_t kPagesPerUnit = 1024;
constexpr std::uint32_t kPoolBlocks = 256;  ///< of I/O buffers: 1 MiB
constexpr std::uint32_t kPathSlice = 1024;
constexpr std::uint32_t kSample = 4096;
constexpr std::uint64_t kNow = 1'000'000;

class Answers final : public deengine::CompletionSink {
  public:
    void on_complete(std::uint64_t, nvme::Status status, std::uint64_t) override {
        ++given;
        failed += !nvme::ok(status);
    }
    std::uint64_t given = 0, failed = 0;
};

struct Job {
    nvme::IoOpcode opcode;
    std::uint32_t bytes;
    std::uint32_t commands;
    bool batched;
};

/// What a drive does with a batch that it has fetched.
void prefetch(const deengine::Engine& engine, std::span<const nvme::Command> batch) {
    for (const nvme::Command& command : batch) engine.prefetch(command);
    for (const nvme::Command& command : batch) engine.prefetch_page(command);
}

/// One engine, filled; used by one thread at a time.
class PathEngine {
  public:
    PathEngine(std::unique_ptr<deengine::Flash> flash, std::uint64_t blocks, bool keeps_data,
               std::uint64_t seed)
        : flash_(std::move(flash)),
          metadata_(4u << 20),
          blocks_(blocks),
          keeps_data_(keeps_data),
          random_(seed),
          pool_(std::make_unique<AlignedBlock[]>(kPoolBlocks)) {}

    Result<void> open() {
        deengine::EngineOptions options;
        options.ssd_uuid[0] = 1;
        GN_ASSIGN(engine_, deengine::Engine::mount(*flash_, metadata_, options, answers_));
        nvme::MapSet set{};
        set.map.version = 1;
        set.map.slot_count = kSlots;
        for (std::uint32_t s = 0; s < kSlots; ++s) {
            set.map.slots[s] = {placement::SlotState::kIn, 0, static_cast<std::uint16_t>(s), 1, {}};
            set.map.slots[s].ssd_uuid[0] = static_cast<std::uint8_t>(s + 1);
        }
        nvme::VolumeRecord r{};
        r.record_version = nvme::kVolumeRecordVersion;
        r.epoch = r.birth_epoch = 1;
        r.owner = r.writer = kPathClient;
        std::snprintf(r.name, sizeof(r.name), "bench");
        std::snprintf(r.owner_name, sizeof(r.owner_name), "bench");
        // A little more than these chunks need, so that enough of them are this drive's.
        r.geometry = {1, blocks_ * kSlots / kReplicas * 5 / 4 + 4096, kVolume, kChunkShift, kReplicas, 0};
        for (std::uint32_t c = 0; chunks_.size() < blocks_ >> kChunkShift; ++c)
            if (placement::holds(placement::place(set.map, r.geometry, c), 0)) chunks_.push_back(c);
        GN_TRY(admin(nvme::AdminOpcode::kVolumeAdd, r));
        GN_TRY(admin(nvme::AdminOpcode::kMapSet, set));
        return fill();
    }

    void draw(const Job& job) {
        commands_.clear();
        drawn_.clear();
        for (std::uint32_t i = 0; i < job.commands; ++i) {
            const std::uint64_t block = random_.below(blocks_);
            nvme::IoFields f = fields(block);
            if (job.bytes < nvme::kBlockBytes) {
                f.sectors = static_cast<std::uint8_t>(job.bytes / nvme::kSectorBytes);
                f.first_sector =
                    static_cast<std::uint8_t>(random_.below(nvme::kSectorsPerBlock - f.sectors + 1));
            }
            if (job.opcode == nvme::IoOpcode::kWrite) f.sequence = ++sequence_;
            drawn_.push_back(block);
            commands_.push_back(nvme::encode_io(job.opcode, f));
        }
    }

    /// Seconds of a slice of kPathSlice commands, the middle one of all.
    double run(const Job& job) {
        Slices slices;
        for (std::uint32_t begin = 0; begin < job.commands; begin += kPathSlice) {
            const Stopwatch watch;
            for (std::uint32_t i = begin; i < begin + kPathSlice; i += kBatch) run_batch(job, i);
            slices.add(watch.seconds());
        }
        return slices.middle();
    }

    /// Everything issued so far was answered, and well; a sample of blocks holds its own words.
    Result<std::uint64_t> check() {
        if (answers_.given != issued_ || answers_.failed != 0)
            return error(Errc::kIo, "of {} commands sent to the engine, {} were completed and {} failed",
                         issued_, answers_.given, answers_.failed);
        if (!keeps_data_) return std::uint64_t{0};
        for (std::uint32_t i = 0; i < kSample; ++i) {
            const std::uint64_t block = random_.below(blocks_);
            submit(nvme::encode_io(nvme::IoOpcode::kRead, fields(block)), buffer(0), nvme::kBlockBytes);
            engine_->poll(kNow);
            std::uint64_t word;
            std::memcpy(&word, buffer(0), sizeof(word));
            if (word != block)
                return error(Errc::kIo, "a read of block {} returned the contents of block {}", block, word);
        }
        return std::uint64_t{kSample};
    }

  private:
    void submit(const nvme::Command& command, std::byte* data, std::size_t bytes) {
        engine_->submit(command, {kPathClient, false}, {data, bytes}, issued_++, kNow);
    }
    void run_batch(const Job& job, std::uint32_t begin) {
        if (job.batched) prefetch(*engine_, std::span(std::as_const(commands_)).subspan(begin, kBatch));
        for (std::uint32_t i = begin; i < begin + kBatch; ++i) submit_drawn(job, i);
        engine_->poll(kNow);
    }
    void submit_drawn(const Job& job, std::uint32_t i) {
        // What is written names its block, as what was filled in did: one store.
        if (job.opcode == nvme::IoOpcode::kWrite) stamp(buffer(i), drawn_[i]);
        submit(commands_[i], buffer(i), job.bytes);
    }
    template <class T>
    Result<void> admin(nvme::AdminOpcode opcode, T payload) {
        nvme::Command c{};
        c.opcode = static_cast<std::uint8_t>(opcode);
        c.cdw14 = 1;  // term
        const std::uint64_t failed = answers_.failed;
        ++issued_;
        engine_->submit_admin(c, {0, true}, std::as_writable_bytes(std::span(&payload, 1)), 0, kNow);
        while (engine_->poll(kNow) != 0) {
        }
        if (answers_.failed != failed)
            return error(Errc::kIo, "the engine refused admin command {:#x}", c.opcode);
        return {};
    }
    [[nodiscard]] nvme::IoFields fields(std::uint64_t block) const {
        nvme::IoFields f;
        f.volume = kVolume;
        f.client = kPathClient;
        f.block =
            chunks_[block >> kChunkShift] << kChunkShift | static_cast<std::uint32_t>(block % kChunkBlocks);
        f.epoch = 1;
        f.map_version = 1;
        return f;
    }
    [[nodiscard]] std::byte* buffer(std::uint64_t i) const { return pool_[i % kPoolBlocks].bytes; }
    static void stamp(std::byte* at, std::uint64_t block) { std::memcpy(at, &block, sizeof(block)); }

    Result<void> fill() {
        for (std::uint64_t block = 0; block < blocks_; block += kChunkBlocks) {
            if (keeps_data_)
                for (std::uint32_t i = 0; i < kChunkBlocks; ++i) stamp(buffer(i), block + i);
            nvme::IoFields f = fields(block);
            f.blocks = kChunkBlocks;
            f.sequence = ++sequence_;
            submit(nvme::encode_io(nvme::IoOpcode::kWrite, f), buffer(0), kChunkBlocks * nvme::kBlockBytes);
            engine_->poll(kNow);
        }
        if (answers_.failed != 0)
            return error(Errc::kIo, "{} writes failed while the engine was filled", answers_.failed);
        return {};
    }

    const std::unique_ptr<deengine::Flash> flash_;
    ssd::MemoryMetadata metadata_;
    const std::uint64_t blocks_;
    const bool keeps_data_;
    SplitMix64 random_;
    const std::unique_ptr<AlignedBlock[]> pool_;
    Answers answers_;
    std::unique_ptr<deengine::Engine> engine_;
    std::vector<std::uint32_t> chunks_;  ///< of the volume, those that are this drive's
    std::vector<nvme::Command> commands_;
    std::vector<std::uint64_t> drawn_;  ///< the block of each
    std::uint64_t sequence_ = 0, issued_ = 0;
};

/// Engines of one kind of flash, one for each core.
class PathBench {
  public:
    PathBench(const char* name, bool keeps_data) : name_(name), keeps_data_(keeps_data) {}

    Result<void> open(const DeEngineOptions& options) {
        const std::uint64_t blocks =
            (keeps_data_ ? options.data_bytes / nvme::kBlockBytes : options.path_blocks) / kChunkBlocks *
            kChunkBlocks;
        const std::uint64_t writes = std::uint64_t{write_commands()} * 3 * options.repeats;
        const std::uint64_t pages = (blocks + writes) * 5 / 4 + 64 * kPagesPerUnit;
        for (std::uint32_t core = 0; core < options.cores; ++core) {
            GN_ASSIGN(auto flash, make_flash(pages));
            engines_.push_back(
                std::make_unique<PathEngine>(std::move(flash), blocks, keeps_data_, options.seed + core));
            GN_TRY(engines_.back()->open());
        }
        return {};
    }

    void add_steps(std::vector<Step>& steps) {
        for (const std::uint32_t bytes : {512u, 4096u})
            for (const bool batched : {false, true})
                add(steps, {nvme::IoOpcode::kRead, bytes, kReadCommands, batched}, 1);
        add(steps, {nvme::IoOpcode::kWrite, nvme::kBlockBytes, write_commands(), false}, 1);
        add(steps, {nvme::IoOpcode::kWrite, nvme::kBlockBytes, write_commands(), true}, 1);
        const auto cores = static_cast<std::uint32_t>(engines_.size());
        if (cores == 1) return;
        for (const std::uint32_t bytes : {512u, 4096u})
            add(steps, {nvme::IoOpcode::kRead, bytes, kReadCommands, true}, cores);
        add(steps, {nvme::IoOpcode::kWrite, nvme::kBlockBytes, write_commands(), true}, cores);
    }

  private:
    static constexpr std::uint32_t kReadCommands = 1u << 18;
    [[nodiscard]] std::uint32_t write_commands() const { return keeps_data_ ? 1u << 14 : 1u << 16; }

    [[nodiscard]] Result<std::unique_ptr<deengine::Flash>> make_flash(std::uint64_t pages) const {
        const deengine::FlashGeometry geometry{static_cast<std::uint32_t>(pages / kPagesPerUnit),
                                               kPagesPerUnit};
        if (!keeps_data_) return std::unique_ptr<deengine::Flash>(new NullFlash(geometry));
        GN_ASSIGN(auto memory, ssd::MemoryFlash::create(geometry));
        return std::unique_ptr<deengine::Flash>(std::move(memory));
    }
    void add(std::vector<Step>& steps, const Job& job, std::uint32_t cores) {
        steps.push_back({{{"operation", job.opcode == nvme::IoOpcode::kRead ? "read" : "write"},
                          {"bytes", job.bytes},
                          {"flash", name_},
                          {"way", job.batched ? "batches of 32" : "single"},
                          {"cores", cores}},
                         [this, job, cores] { return run(job, cores); }});
    }
    Result<Repeat> run(const Job& job, std::uint32_t cores) {
        for (std::uint32_t c = 0; c < cores; ++c) engines_[c]->draw(job);
        std::barrier together(cores);
        std::vector<double> seconds(cores);
        const auto work = [&](std::uint32_t c) {
            together.arrive_and_wait();
            seconds[c] = engines_[c]->run(job);
        };
        std::vector<std::jthread> others;
        for (std::uint32_t c = 1; c < cores; ++c) others.emplace_back(work, c);
        work(0);
        others.clear();  // joins
        // All together, at the rate of the slowest.
        const std::uint64_t operations = std::uint64_t{kPathSlice} * cores;
        Repeat repeat =
            repeat_of(*std::max_element(seconds.begin(), seconds.end()), operations, operations * job.bytes);
        for (std::uint32_t c = 0; c < cores; ++c) {
            GN_ASSIGN(const std::uint64_t checked, engines_[c]->check());
            repeat.checked += checked;
        }
        return repeat;
    }

    const char* const name_;
    const bool keeps_data_;
    std::vector<std::unique_ptr<PathEngine>> engines_;
};

}  // namespace

Result<std::vector<Case>> measure_path(const DeEngineOptions& options) {
    std::vector<Case> cases;
    for (const bool keeps_data : {false, true}) {
        PathBench bench(keeps_data ? "memory flash" : "null flash", keeps_data);
        GN_TRY(bench.open(options));
        std::vector<Step> steps;
        bench.add_steps(steps);
        GN_ASSIGN(std::vector<Case> measured, measure(keeps_data ? "path, memory flash" : "path, null flash",
                                                      options.repeats, std::move(steps)));
        for (Case& c : measured) cases.push_back(std::move(c));
    }
    return cases;
}

}  // namespace gnstor::bench::deengine_bench
