// result.hpp: errors as values on the host.
//
// A Result<T> holds a T or an Error; an Error says what was tried, on what, and what to do. Neither may be
// ignored. Host code only: device code returns nvme::Status.
#pragma once

// fmt up to 9 makes its functions non-constexpr under nvcc and then calls them from constexpr ones.
#if defined(__CUDACC__) && !defined(FMT_USE_CONSTEXPR)
#define FMT_USE_CONSTEXPR 1
#endif
#include <fmt/core.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <variant>

namespace gnstor {

/// Kinds of failure, for programs; the message is for people. `http_status` and exit codes are derived from
/// it.
enum class Errc {
    kInvalidArgument,  ///< the caller's input is wrong, and will be wrong again
    kNotFound,         ///< no such volume, SSD, file
    kExists,           ///< the name or the address is taken
    kPermission,       ///< not the owner, not the writer, read-only
    kBusy,             ///< held by another user now; try again later
    kTimedOut,         ///< a deadline passed
    kNoSpace,          ///< capacity, slots, memory or tables exhausted
    kCorrupt,          ///< bytes from outside failed a check (file, packet, record)
    kIo,               ///< the operating system, a drive or the network refused
    kUnsupported,      ///< this build or machine cannot do it
    kState,            ///< the wrong state for this: closed, not connected, in error
    kInternal,         ///< a defect in this program
};

struct Error {
    Errc code;
    std::string message;
};

/// Builds an Error from a format string: what was tried, on what, what to do.
template <class... Args>
[[nodiscard]] Error error(Errc code, fmt::format_string<Args...> format, Args&&... args) {
    return Error{code, fmt::format(format, std::forward<Args>(args)...)};
}

[[noreturn]] void die_on_unchecked_result(const Error& error) noexcept;

/// A value or an Error. `value()` on an Error ends the program with its message: check first.
template <class T>
class [[nodiscard]] Result {
  public:
    Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit by design
    Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

    [[nodiscard]] bool ok() const noexcept { return state_.index() == 0; }
    explicit operator bool() const noexcept { return ok(); }

    [[nodiscard]] T& value() & {
        check();
        return std::get<0>(state_);
    }
    [[nodiscard]] const T& value() const& {
        check();
        return std::get<0>(state_);
    }
    [[nodiscard]] T&& value() && {
        check();
        return std::get<0>(std::move(state_));
    }
    [[nodiscard]] T& operator*() & { return value(); }
    [[nodiscard]] const T& operator*() const& { return value(); }
    [[nodiscard]] T&& operator*() && { return std::move(*this).value(); }
    [[nodiscard]] T* operator->() { return &value(); }
    [[nodiscard]] const T* operator->() const { return &value(); }

    [[nodiscard]] const Error& error() const& { return std::get<1>(state_); }
    [[nodiscard]] Error&& error() && { return std::get<1>(std::move(state_)); }

  private:
    void check() const {
        if (!ok()) die_on_unchecked_result(std::get<1>(state_));
    }
    std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
  public:
    Result() = default;
    Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

    [[nodiscard]] bool ok() const noexcept { return state_.index() == 0; }
    explicit operator bool() const noexcept { return ok(); }
    void value() const {
        if (!ok()) die_on_unchecked_result(std::get<1>(state_));
    }
    [[nodiscard]] const Error& error() const& { return std::get<1>(state_); }
    [[nodiscard]] Error&& error() && { return std::get<1>(std::move(state_)); }

  private:
    std::variant<std::monostate, Error> state_;
};

}  // namespace gnstor

/// Returns early with the Error of `expression` (a Result), or continues.
#define GN_TRY(expression)                                                                                   \
    do {                                                                                                     \
        if (auto gn_try_result = (expression); !gn_try_result.ok()) return std::move(gn_try_result).error(); \
    } while (false)

#define GN_CONCAT_(a, b) a##b
#define GN_CONCAT(a, b) GN_CONCAT_(a, b)
/// Declares `declaration` from the value of `expression` (a Result), or returns early with its Error.
#define GN_ASSIGN(declaration, expression)                                                                \
    auto GN_CONCAT(gn_result_, __LINE__) = (expression);                                                  \
    if (!GN_CONCAT(gn_result_, __LINE__).ok()) return std::move(GN_CONCAT(gn_result_, __LINE__)).error(); \
    declaration = std::move(GN_CONCAT(gn_result_, __LINE__)).value()
