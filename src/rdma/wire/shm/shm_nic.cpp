// shm_nic.cpp: see shm_nic.hpp.
#include "rdma/wire/shm/shm_nic.hpp"

#include "rdma/wire/shm/nodes.hpp"

namespace gnstor::rdma {

Result<std::unique_ptr<Nic>> open_shm_nic(const std::filesystem::path& path, std::optional<pid_t> server) {
    return open_shm_nic({ShmNode{{}, [place = ShmNode::Place{path, server}] { return Result(place); }}});
}

Result<std::unique_ptr<Nic>> open_shm_nic(std::vector<ShmNode> nodes) {
    // A single lane that finds several completions acquires the newest of them (poller.hpp). That orders what
    // one process wrote everywhere, and what several wrote where loads stay in their order.
#if !defined(__x86_64__)
    if (nodes.size() > 1)
        return error(Errc::kUnsupported,
                     "sharing memory with {} nodes at once is supported on x86-64 only; use one node",
                     nodes.size());
#endif
    GN_ASSIGN(std::unique_ptr<shm::Nodes> nic, shm::Nodes::open(std::move(nodes)));
    return Result<std::unique_ptr<Nic>>(std::move(nic));
}

}  // namespace gnstor::rdma
