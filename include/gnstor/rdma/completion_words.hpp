// completion_words.hpp: the last 8 bytes of a completion: queue pair number, counter, owner. The NIC
// stores them with one release and lanes load them with one acquire: a lane needs one load for both
// words, and store and load have the same size, as the memory models of C++ and PTX require.
#pragma once

#include <gnstor/rdma/mlx5.hpp>
#include <gnstor/simt/atomic.hpp>

namespace gnstor::rdma {

struct LastWords {
    std::uint32_t sop_drop_qpn, counter_own;  ///< as they lie in memory
};

/// If `counter_own` shows a valid completion, the rest of the completion and its message are visible
/// after this.
GN_HD
inline LastWords acquire_last_words(const mlx5::Cqe64* cqe) {
    // Pairs with release_last_words.
    const auto pair = simt::load_acquire_pair<simt::Scope::kSystem>(&cqe->sop_drop_qpn);
    return LastWords{pair.first, pair.second};
}
/// By the NIC, after all other words are written.
GN_HD
inline void release_last_words(mlx5::Cqe64* cqe, const LastWords& words) {
    // Pairs with acquire_last_words.
    simt::store_release_pair<simt::Scope::kSystem>(&cqe->sop_drop_qpn,
                                                   {words.sop_drop_qpn, words.counter_own});
}

}  // namespace gnstor::rdma
