// udp_numbers_test.cpp: the numbers by which packets name queue pairs and memory: nobody can compute them.
#include "rdma/nic_fixture.hpp"

#include <algorithm>
#include <set>

namespace gnstor::rdma::test {
namespace {

class UdpNumbers : public NicTest {};

TEST_F(UdpNumbers, KeysAreRandomInAllTheirBitsAndAnEndedOneIsNotGivenAgainSoon) {
    std::vector<std::byte> memory(4096);
    std::vector<std::uint32_t> keys;
    std::uint32_t any = 0, all = ~0u, neighbours = 0;
    for (std::uint32_t i = 0; i < 300; ++i) {
        keys.push_back(must(b->register_memory(memory.data(), memory.size(), kRemoteRead)).rkey);
        any |= keys.back();
        all &= keys.back();
        if (i > 0) neighbours += keys[i] - keys[i - 1] <= 256 ? 1 : 0;
    }
    EXPECT_EQ(any, ~0u);
    EXPECT_EQ(all, 0u);
    EXPECT_LE(neighbours, 2u);
    std::set<std::uint32_t> seen(keys.begin(), keys.end());
    EXPECT_EQ(seen.size(), keys.size());
    for (std::uint32_t i = 0; i < 5000; ++i) {
        std::uint32_t& key = keys[i % keys.size()];
        must(b->deregister_memory({key, key}));
        key = must(b->register_memory(memory.data(), memory.size(), kRemoteRead)).rkey;
        EXPECT_TRUE(seen.insert(key).second) << "a stale key must stay invalid";
    }
    for (const std::uint32_t key : keys) must(b->deregister_memory({key, key}));
}

TEST_F(UdpNumbers, QueuePairNumbersAreRandomInAllTheirBitsAndNeverTheLastOneOfTheirPlace) {
    struct Sink : MessageSink {
        void on_message(const InboundMessage&) override {}
        void on_error(QpNumber) override {}
    } sink;
    QpNumber any = 0, all = 0xFFFFFF;
    std::uint32_t neighbours = 0;
    std::vector<QpNumber> last(4096);
    QpNumber before = 0;
    for (std::uint32_t i = 0; i < 6000; ++i) {
        const QpNumber qp = must(b->create_offload_queue_pair(sink));
        EXPECT_NE(qp, last[qp % 4096]);
        neighbours += qp - before <= 1 || qp - before == 4096 ? 1 : 0;
        any |= qp;
        all &= qp;
        last[qp % 4096] = before = qp;
        must(b->destroy_queue_pair(qp));
    }
    EXPECT_EQ(any, 0xFFFFFFu);
    EXPECT_EQ(all, 0u);
    EXPECT_LE(neighbours, 2u);
}

}  // namespace
}  // namespace gnstor::rdma::test
