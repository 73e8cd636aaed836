// callbacks.hpp: what runs when an asynchronous request is done. CPU and GPU lanes.
//
// A callback is a *handler*: a small, trivially copyable functor, `handler(status)`. Its bytes lie in the
// request's first command slot, beside a word that names its type: the address of invoke<Handler>. A lane
// that finds the request done runs it; how depends on the type of that lane's view of the channel:
//   * Callbacks<F...> (ChannelRef::with<F...>()): the word is compared with each F's, and the matching
//     handler is called directly, inlined where the compiler likes. Handlers of other types stay due for a
//     lane that knows them. A kernel with such views alone has no indirect call in it;
//   * AnyCallback, the default: the same for pointers to functions (C); all other handlers by an indirect
//     call through the word.
// Why: an indirect call on a GPU goes to a function that the compiler does not know, so all registers in use
// are spilled around it by the rules of the call ABI, and lanes whose targets differ take turns. In the
// polling loop every kernel would pay for that; a comparison with a constant costs next to nothing.
//
// A handler must not make calls that wait. The request's slots are free again when it runs.
//
// On a GPU a function's address is valid within one *module* only: one .cu file with what it includes, or all
// files that were linked as device code (-rdc). A kernel of another module has other addresses for the same
// functions, and would call ours without the registers and stack that they need. So a request also carries
// its module (this_module()); a lane of another module leaves it due. Beware of inline functions that launch
// kernels: if two sources include one, the linker keeps one copy of it, and with it one of the modules.
#pragma once

#include <gnstor/base/target.hpp>
#include <gnstor/nvme/status.hpp>

#include <cstdint>
#include <type_traits>

namespace gnstor {

/// A callback in C style.
using Callback = void (*)(void* argument, nvme::Status status);

/// A pointer to a function and its argument, as a handler. Null: nothing happens.
struct PointerCallback {
    Callback function;
    void* argument;
    GN_HD
    void operator()(nvme::Status status) const {
        if (function != nullptr) function(argument, status);
    }
};

/// An entry of a table of functions in memory that lanes see (callback_table.hpp): the function and its
/// module.
struct CallbackEntry {
    Callback function;
    std::uint64_t module;
};

/// A handler that names such an entry, which is looked up when the request is done. If the entry is empty, or
/// another module has set it meanwhile, nothing is called; the request ends all the same.
struct TableCallback {
    const CallbackEntry* table;
    std::uint64_t index;
    void* argument;
    GN_HD
    void operator()(nvme::Status status) const;
};

namespace gnor {

#if defined(__CUDACC_RDC__)
inline __device__ char module_mark;  // one for all that is linked together
#elif defined(__CUDACC__)
[[maybe_unused]] static __device__ char module_mark;  // one for each source
#endif

/// The module of the calling code: function addresses of a request with another number must not be called
/// here. CPU lanes all belong to one program: 1.
GN_HD
inline std::uint64_t this_module() {
#if GN_DEVICE_PASS
    return reinterpret_cast<std::uint64_t>(&module_mark);
#else
    return 1;
#endif
}

}  // namespace gnor

GN_HD
inline void TableCallback::operator()(nvme::Status status) const {
    const CallbackEntry entry = table[index];
    // The lane was picked by the entry's module at the time of sending (module_of): it may have changed.
    if (entry.function != nullptr && entry.module == gnor::this_module()) entry.function(argument, status);
}

namespace gnor {

inline constexpr std::uint32_t kHandlerWords = 3;
inline constexpr std::uint32_t kHandlerBytes = 8 * kHandlerWords;

/// A handler's bytes.
struct HandlerBytes {
    alignas(8) std::uint64_t words[kHandlerWords];
};

template <class Handler>
GN_HD constexpr void check_handler() {
    static_assert(std::is_trivially_copyable_v<Handler>,
                  "a handler is copied as raw bytes: make it trivially copyable");
    static_assert(sizeof(Handler) <= kHandlerBytes && alignof(Handler) <= alignof(HandlerBytes),
                  "a handler is stored in its command slot, which has 24 bytes for it: keep larger data in "
                  "memory that the lanes can access, and store its address in the handler");
    static_assert(std::is_invocable_v<const Handler&, nvme::Status>,
                  "a handler is called with the request's status: void operator()(nvme::Status) const");
}

/// The handler in these bytes, called directly.
template <class Handler>
GN_HD void invoke(const void* bytes, nvme::Status status) {
    (*static_cast<const Handler*>(bytes))(status);
}
/// The module whose lanes may run a handler: the caller's; for an entry of a table, the module that set it.
template <class Handler>
GN_HD std::uint64_t module_of(const Handler& handler) {
    if constexpr (std::is_same_v<Handler, TableCallback>) {
        const CallbackEntry& entry = handler.table[handler.index];
        if (entry.function != nullptr) return entry.module;
    }
    return this_module();
}
/// The word that names a handler's type.
template <class Handler>
GN_HD std::uint64_t handler_word() {
    return reinterpret_cast<std::uint64_t>(&invoke<Handler>);
}

/// What a view runs: these handlers, directly.
template <class... Handlers>
struct Callbacks {
    static constexpr bool kAny = sizeof...(Handlers) != 0;
    template <class Handler>
    static constexpr bool kKnows = (std::is_same_v<Handler, Handlers> || ...);

    GN_HD
    static bool knows([[maybe_unused]] std::uint64_t word) {
        return ((word == handler_word<Handlers>()) || ...);
    }
    GN_HD
    static void run([[maybe_unused]] std::uint64_t word, [[maybe_unused]] const HandlerBytes& handler,
                    [[maybe_unused]] nvme::Status status) {
        const auto one = [&](bool named, auto call) {
            if (named) call(handler.words, status);
            return named;
        };
        (void)(one(word == handler_word<Handlers>(),
                   [](const void* bytes, nvme::Status s) { invoke<Handlers>(bytes, s); }) ||
               ...);
    }
};

/// What a view runs: any handler; those of C directly, others by an indirect call.
struct AnyCallback {
    static constexpr bool kAny = true;
    template <class Handler>
    static constexpr bool kKnows = true;

    GN_HD
    static bool knows(std::uint64_t) { return true; }
    GN_HD
    static void run(std::uint64_t word, const HandlerBytes& handler, nvme::Status status) {
        using OfC = Callbacks<PointerCallback, TableCallback>;
        if (OfC::knows(word)) return OfC::run(word, handler, status);
        reinterpret_cast<void (*)(const void*, nvme::Status)>(word)(handler.words, status);
    }
};

}  // namespace gnor
}  // namespace gnstor
