// secret.hpp: bytes that must leave no trace: keys, shared secrets, responses that are expected.
//
// Invariants
//   * the memory is overwritten before it is given back, also by a move assignment;
//   * nothing prints a Secret or formats it, and the time of a comparison does not depend on the bytes.
// A Secret cannot be copied by accident: clone() says so. Pure; one owner at a time.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace gnstor::nvmf::auth {

class Secret {
  public:
    Secret() = default;
    explicit Secret(std::size_t bytes) : bytes_(bytes) {}
    explicit Secret(std::span<const std::byte> bytes) : bytes_(bytes.begin(), bytes.end()) {}
    ~Secret() { wipe(); }
    Secret(Secret&& other) noexcept : bytes_(std::move(other.bytes_)) {}
    Secret& operator=(Secret&& other) noexcept;
    Secret(const Secret&) = delete;
    Secret& operator=(const Secret&) = delete;

    [[nodiscard]] Secret clone() const { return Secret(view()); }
    [[nodiscard]] std::span<const std::byte> view() const { return bytes_; }
    [[nodiscard]] std::span<std::byte> writable() { return bytes_; }
    [[nodiscard]] std::size_t size() const { return bytes_.size(); }
    [[nodiscard]] bool empty() const { return bytes_.empty(); }

    /// Whether the bytes are these. The time depends on the lengths alone.
    [[nodiscard]] bool equals(std::span<const std::byte> other) const;

    /// Overwrites the bytes and forgets them.
    void wipe() noexcept;

  private:
    std::vector<std::byte> bytes_;
};

}  // namespace gnstor::nvmf::auth
