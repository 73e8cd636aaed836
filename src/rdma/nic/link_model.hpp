// link_model.hpp: when a modelled network would deliver a message: bandwidth and latency of each
// direction between a node and all its peers.
//
// Time is an argument. Messages of one direction leave one after the other, whatever queue pair or thread
// sends them; each arrives one latency after its last byte left. So messages of one direction arrive in
// the order in which they were sent. Any thread: a direction is one atomic word.
#pragma once

#include <gnstor/base/result.hpp>

#include <atomic>
#include <cstdint>

namespace gnstor::rdma {

struct LinkDirection {
    double bytes_per_second = 0;  ///< payload rate; headers are not counted
    std::uint64_t latency_ns = 0;
    bool operator==(const LinkDirection&) const = default;
};

struct LinkTiming {
    LinkDirection to_node, from_node;
    [[nodiscard]] bool none() const { return to_node == LinkDirection{} && from_node == LinkDirection{}; }
    bool operator==(const LinkTiming&) const = default;
};

/// kInvalidArgument: names the value that is out of range. none() passes.
Result<void> check(const LinkTiming& timing);

class LinkModel {
  public:
    /// `timing` passed check() and is not none; no later `now_ns` is below `begin_ns`.
    LinkModel(const LinkTiming& timing, std::uint64_t begin_ns);

    /// When a message sent now arrives.
    std::uint64_t to_node(std::uint64_t now_ns, std::uint64_t bytes) { return to_node_.send(now_ns, bytes); }
    std::uint64_t from_node(std::uint64_t now_ns, std::uint64_t bytes) {
        return from_node_.send(now_ns, bytes);
    }
    /// A message whose receiver first fetches `fetched` bytes from the sender: adds one more trip each
    /// way.
    std::uint64_t to_node_with_fetch(std::uint64_t now_ns, std::uint64_t bytes, std::uint64_t fetched);

  private:
    class Direction {
      public:
        void begin(const LinkDirection& timing, std::uint64_t begin_ns);
        std::uint64_t send(std::uint64_t now_ns, std::uint64_t bytes);
        [[nodiscard]] std::uint64_t latency_ns() const { return latency_ns_; }

      private:
        /// In 2^-8 ns since `begin_ns`: the rounding error is below 1e-4 of the smallest message; the
        /// range lasts for years.
        static constexpr std::uint32_t kFraction = 8;
        double byte_cost_ = 0;
        std::uint64_t latency_ns_ = 0;
        std::uint64_t begin_ns_ = 0;
        /// When the last byte sent so far leaves. Orders no other memory.
        alignas(64) std::atomic<std::uint64_t> busy_until_{0};
    };
    Direction to_node_, from_node_;
};

}  // namespace gnstor::rdma
