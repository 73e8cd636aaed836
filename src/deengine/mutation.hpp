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
    kForgetLostRecords,      ///< a page whose record is lost after a kill is as if never written
    kAnswerSupersededEarly,  ///< "superseded" is answered before the winner is durable
    kFreeUnitEarly,          ///< a unit is free before the copies of its pages are durable
    kTornNotRecorded,        ///< recovery does not write down which pages a cut tore
    kSkipFirstSync,          ///< recovery builds on what a killed process left and nothing made stable
    kNoSerialGap,            ///< serials of units whose pages a cut took are given out again
    kMovedNotRecorded,       ///< a checkpoint says nothing of entries that moved while it was written
    kMoveKeepsWay,           ///< a moved entry of the map says that its other bucket is its first one
    kDamagedCopyNotHeld,     ///< the unit that a damaged page was copied from is erased at once
    kLostBlockNotPut,        ///< a block whose page is gone is forgotten by recovery
    kOldMapAccepted,         ///< a command under an older map version is done
    kGrantNeverExpires,      ///< a grant has no end
    kOnlyFirstChunk,         ///< of a command's chunks only the first must be this drive's
    kReaderMayWrite,         ///< whoever may read may write
    kOldMapSetAccepted,      ///< MAP SET of an older version takes effect
    kTermUnchecked,          ///< admin commands of an older term are done
    kEqualRebirth,           ///< a VID may be born again at the last epoch of its former life
    kSameOrderTrimWins,      ///< a trim takes effect over contents of its very sequence
    kStateCrcIgnored,        ///< the firmware's state is believed whatever its CRC says
};

}  // namespace gnstor::deengine
