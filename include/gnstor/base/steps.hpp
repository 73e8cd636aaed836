// steps.hpp: opening, formatting, recovering and closing as tables of named steps, each with its undo.
//
// A table is the procedure, in its order. On failure the steps that were done are undone in reverse, and the
// error names the step. Host code; the caller's thread.
#pragma once

#include <gnstor/base/result.hpp>

#include <cstddef>
#include <span>
#include <string_view>

namespace gnstor {

template <class Context>
struct Step {
    const char* name;
    Result<void> (Context::*run)();
    void (Context::*undo)();  ///< null: nothing to undo
};

/// Runs the steps in order. `what` begins the error's message: `<what>, step "<name>": <why>`.
template <class Context>
Result<void> run_steps(Context& context, std::span<const Step<Context>> steps, std::string_view what) {
    for (std::size_t done = 0; done < steps.size(); ++done) {
        Result<void> result = (context.*steps[done].run)();
        if (result.ok()) continue;
        for (std::size_t i = done; i > 0; --i)
            if (steps[i - 1].undo != nullptr) (context.*steps[i - 1].undo)();
        Error why = std::move(result).error();
        why.message = fmt::format("{}, step \"{}\": {}", what, steps[done].name, why.message);
        return why;
    }
    return {};
}

/// Runs all steps, even after one failed; calls failed(name, error) for each failure. For closing.
template <class Context, class Failed>
void run_every_step(Context& context, std::span<const Step<Context>> steps, Failed&& failed) {
    for (const Step<Context>& step : steps)
        if (const Result<void> result = (context.*step.run)(); !result.ok())
            failed(step.name, result.error());
}

}  // namespace gnstor
