// mutation.hpp: rules that the simulator may break on purpose, to prove that it would notice. Pure.
//
// A drive never sets one; only the simulation and its tests do (EngineOptions::mutation).
#pragma once

#include <cstdint>

namespace gnstor::deengine {

enum class Mutation : std::uint8_t {
    kNone,
    kSkipNewerCheck,         ///< a write takes effect though the stored version is newer
    kCompleteBeforeProgram,  ///< a write is answered before its page is programmed
    kCollectorForgetsMap,    ///< the collector copies a page and leaves the map at the old one
    kIgnoreOobCrc,           ///< a torn record is believed
    kTrimWithoutTombstone,   ///< a trim forgets the block and remembers no order
    kCheckpointBeforeLog,    ///< a checkpoint is ended before what its slices name is durable
    kApplyOutdatedPage,      ///< recovery maps a page of an earlier life of its VID
    kForgetDoubt,            ///< a young page whose contents are bad is as if never written
    kAnswerSupersededEarly,  ///< "superseded" is answered before the winner is durable
};

}  // namespace gnstor::deengine
