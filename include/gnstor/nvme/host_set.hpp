// host_set.hpp: payload of the vendor admin command HOST SET: which clients a target lets in.
//
// A target that authenticates hosts derives each client's key from a secret of its own, the client's host NQN
// and a generation (src/nvmf/access/derived_hosts.hpp), so that no key ever crosses the network: gnstord
// sends only the generations. A client that is not listed has no key. One HOST SET carries one page of the
// list; a list takes effect when its last page arrives, and is answered when every queue of a host whose key
// is no longer valid has ended. Little endian.
#pragma once

#include <gnstor/nvme/command.hpp>

#include <cstddef>
#include <cstdint>

namespace gnstor::nvme {

inline constexpr std::uint32_t kHostSetVersion = 1;

struct HostSetEntry {
    ClientId client;
    std::uint16_t reserved;
    std::uint32_t generation;  ///< not 0; raised when the key is rotated
};
static_assert(sizeof(HostSetEntry) == 8 && offsetof(HostSetEntry, generation) == 4);

inline constexpr std::uint32_t kHostSetEntriesMax = 504;

/// A target keeps the list with the highest {term, version}; the same one is answered without effect, an
/// older one is refused (Stale Term; under the same term Invalid Field), and so is a term that no daemon can
/// have reached (Command Sequence Error; fencing.hpp).
struct HostSetPage {
    std::uint32_t record_version;  ///< kHostSetVersion
    std::uint32_t count;           ///< entries of this page
    std::uint64_t term;            ///< of the daemon
    std::uint64_t version;         ///< of the list, within the term
    std::uint32_t first;           ///< index of this page's first entry in the list; 0 begins a list
    std::uint32_t total;           ///< entries of the whole list
    HostSetEntry entries[kHostSetEntriesMax];  ///< in order of client id
};
static_assert(sizeof(HostSetPage) == 4064 && offsetof(HostSetPage, entries) == 32,
              "a page fits the data of one capsule");

}  // namespace gnstor::nvme
