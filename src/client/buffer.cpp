// buffer.cpp: memory registered with every channel of a client: maps it as the wire requires, registers it,
// and undoes both.
#include <gnstor/base/log.hpp>
#include <gnstor/client/buffer.hpp>

#include "client/client_impl.hpp"

namespace gnstor::client {

Result<Buffer> Client::map_buffer(std::size_t bytes) {
    rdma::Nic& nic = impl_->nic;
    Buffer made;
    GN_ASSIGN(made.memory_,
              simt::PinnedMemory::map(bytes, impl_->options.lanes, {.shareable = nic.wants_shared_memory()}));
    GN_TRY(nic.share_memory(made.data(), made.size(), made.memory_.file()));
    if (auto registered = register_buffer(made.data(), made.size()); !registered.ok()) {
        if (auto unshared = nic.unshare_memory(made.data()); !unshared.ok()) made.memory_.leave_mapped();
        return std::move(registered).error();
    }
    made.client_ = this;
    return Result<Buffer>(std::move(made));  // nvcc would copy for a plain "return made"
}

Result<void> Buffer::release() {
    if (client_ == nullptr) return {};
    // Retry after a failure: kNotFound means that it is unregistered already.
    if (auto gone = client_->unregister_buffer(data()); !gone.ok() && gone.error().code != Errc::kNotFound)
        return gone;
    GN_TRY(client_->impl_->nic.unshare_memory(data()));
    client_ = nullptr;
    memory_ = simt::PinnedMemory();
    return {};
}

void Buffer::end() noexcept {
    if (auto done = release(); !done.ok()) {
        log_error("a buffer of {} bytes at {} could not be released and stays mapped: {}", size(),
                  static_cast<const void*>(data()), done.error().message);
        memory_.leave_mapped();
    }
    client_ = nullptr;
}

}  // namespace gnstor::client
