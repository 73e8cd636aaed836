// replace_test.cpp: the store of an SSD is lost for good; an empty one takes its slot, is filled over NVMe-oF, and holds
// what the other replicas hold.
#include "embedded/replicas.hpp"
#include "support/count.hpp"

#include <filesystem>

namespace gnstor::test::replace_test {

/// Records that outlive the array that uses them.
class KeptRecords final : public daemon::RecordStore {
  public:
    explicit KeptRecords(std::shared_ptr<daemon::MemoryRecordStore> kept) : kept_(std::move(kept)) {}
    Result<daemon::Records> load() override { return kept_->load(); }
    Result<void> save(const daemon::Change& change) override { return kept_->save(change); }

  private:
    std::shared_ptr<daemon::MemoryRecordStore> kept_;
};

class Replace : public ::testing::Test {
  protected:
    static constexpr std::uint32_t kSsds = 3, kLost = 1, kBlocks = 512;

    Replace()
        : folder(std::filesystem::temp_directory_path() / fmt::format("gnstor-replace-{}", ::getpid())) {
        std::filesystem::remove_all(folder);
        open();
    }
    ~Replace() override {
        writer.reset();
        array.reset();
        std::filesystem::remove_all(folder);
    }
    void open() {
        EmbeddedArrayOptions o;
        o.ssds = kSsds;
        o.ssd_capacity_bytes = 64 * kMiB;
        o.directory = folder;
        o.strict_nic = true;
        o.grant_ms = 3'000;
        auto opened = EmbeddedArray::open(o, std::make_unique<KeptRecords>(records));
        ASSERT_TRUE(opened.ok()) << opened.error().message;
        array = std::move(opened).value();
        writer = connect("writer");
    }
    void close() {
        writer.reset();
        array.reset();
    }
    std::unique_ptr<client::Client> connect(const std::string& name) {
        client::ClientOptions c;
        c.name = name;
        c.channels = 1;
        return array->connect(c).value();
    }
    std::string state() {
        for (const daemon::SsdInfo& ssd : array->daemon().inspect().ssds)
            if (ssd.slot == kLost) return ssd.state;
        return "";
    }
    /// Blocks [first, first + blocks) get the tag.
    void write(client::Client& by, client::Volume& volume, std::uint32_t first, std::uint32_t blocks,
               std::uint64_t tag) {
        std::vector<std::uint64_t> words(kWordsPerBlock);
        for (std::uint32_t b = first; b < first + blocks; ++b) {
            fill_tagged(simt::self(simt::Lane{}), words.data(), 9, b, 1, tag);
            ASSERT_EQ(
                volume.ref().write(simt::self(simt::Lane{}), by.channel(0).ref(), b, 1, words.data(), late()),
                nvme::Status::kSuccess)
                << "block " << b;
        }
    }
    ::testing::AssertionResult wait_until_in() {
        const std::uint64_t until = simt::now_ns() + kLongNs;
        while (simt::now_ns() < until) {
            const daemon::ArrayInfo info = array->daemon().inspect();
            if (!info.rebuild && state() == "in") return ::testing::AssertionSuccess();
            for (int i = 0; i < 10'000; ++i) std::this_thread::yield();  // others want the daemon, too
        }
        const daemon::ArrayInfo info = array->daemon().inspect();
        auto failed = ::testing::AssertionFailure()
                      << "slot " << kLost << " is " << state() << ", map in force " << info.map_in_force;
        if (info.rebuild)
            failed << ", " << info.rebuild->blocks_done << " of " << info.rebuild->blocks_total << " blocks, "
                   << info.rebuild->ranges_stuck << " ranges stuck; last refusal: " << info.rebuild->refusal;
        for (const daemon::SsdInfo& ssd : info.ssds) failed << "; slot " << ssd.slot << ": " << ssd.trouble;
        return failed;
    }

    /// A client that connected when the slot had no SSD uses the one that fills it now.
    void expect_writes_of(client::Client& client) {
        client::CreateVolume r;
        r.name = "late";
        r.capacity_bytes = std::uint64_t{kBlocks} * nvme::kBlockBytes;
        r.chunk_bytes = 16384;
        (void)client.create(r).value();
        GN_ASSERT_OK(client.reclaim());
        auto volume = client.open("late", client::OpenMode::kWrite).value();
        write(client, *volume, 0, kBlocks, tag_of(1, 1));
        GN_ASSERT_OK(volume->release());
        EXPECT_EQ(expect_tags(client, "late", 9, [](std::uint32_t) { return tag_of(1, 1); }),
                  std::uint64_t{kBlocks} * 2);
        count("array_blocks_written_by_an_earlier_client", kBlocks);
    }

    std::filesystem::path folder;
    std::shared_ptr<daemon::MemoryRecordStore> records = std::make_shared<daemon::MemoryRecordStore>();
    std::unique_ptr<EmbeddedArray> array;
    std::unique_ptr<client::Client> writer;
};

TEST_F(Replace, AnEmptySsdInPlaceOfALostOneIsFilledAndHoldsWhatTheOtherReplicasHold) {
    client::CreateVolume r;
    r.name = "v";
    r.capacity_bytes = std::uint64_t{kBlocks} * nvme::kBlockBytes;
    r.chunk_bytes = 16384;
    (void)writer->create(r).value();
    {
        auto volume = writer->open("v", client::OpenMode::kWrite).value();
        write(*writer, *volume, 0, kBlocks / 2, tag_of(0, 1));
        GN_ASSERT_OK(volume->release());
    }
    close();
    ASSERT_TRUE(std::filesystem::remove(folder / fmt::format("ssd-{}.store", kLost)));
    open();
    ASSERT_EQ(state(), "missing");
    const auto early = connect("early");
    const std::uint64_t until = simt::now_ns() + kLongNs;
    Result<void> replaced = array->daemon().replace_ssd(kLost);
    while (!replaced.ok() && replaced.error().code == Errc::kBusy && simt::now_ns() < until) {
        for (int i = 0; i < 10'000; ++i) std::this_thread::yield();
        replaced = array->daemon().replace_ssd(kLost);
    }
    GN_ASSERT_OK(replaced);
    // A client that connects now writes while the slot is being filled, or just after.
    writer = connect("writer");
    auto volume = writer->open("v", client::OpenMode::kWrite).value();
    write(*writer, *volume, kBlocks / 4, kBlocks / 2, tag_of(0, 2));
    ASSERT_TRUE(wait_until_in());
    write(*writer, *volume, kBlocks - 8, 8, tag_of(0, 3));
    GN_ASSERT_OK(volume->release());
    expect_writes_of(*early);
    auto reader = connect("writer");
    const std::uint64_t visited = expect_tags(*reader, "v", 9, [](std::uint32_t b) -> std::uint64_t {
        if (b >= kBlocks - 8) return tag_of(0, 3);
        if (b >= kBlocks / 4 && b < kBlocks * 3 / 4) return tag_of(0, 2);
        return b < kBlocks / 4 ? tag_of(0, 1) : 0;
    });
    EXPECT_EQ(visited, std::uint64_t{kBlocks} * 2);
    count("array_replicas_after_replacement", visited);
    (void)writer
        ->create([] {
            client::CreateVolume more;
            more.name = "more";
            more.capacity_bytes = nvme::kBlockBytes;
            return more;
        }())
        .value();
}

}  // namespace gnstor::test::replace_test
