// copy_once.hpp: reads a structure that another process may change at any time: once, so that what was
// checked is what is used.
#pragma once

#include <cstring>
#include <type_traits>

namespace gnstor::rdma {

/// The compiler may not read `shared` again in place of `copy`: behind the empty statement the copy's bytes
/// are unknown to it. Costs no instruction where the copy lies in memory anyway.
template <class T>
void copy_once(T& copy, const T* shared) noexcept {
    static_assert(std::is_trivially_copyable_v<T>, "bytes are copied");
    std::memcpy(&copy, shared, sizeof copy);
    asm("" : "+m"(copy));
}

}  // namespace gnstor::rdma
