// mutation.hpp: rules that the simulator breaks on purpose, to prove that its checks notice. Pure.
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
    kIgnoreOobCrc,           ///< a torn record is accepted as good
    kTrimWithoutTombstone,   ///< a trim unmaps the block but leaves no tombstone
    kCheckpointBeforeLog,    ///< a checkpoint ends before the pages that its slices name are durable
    kApplyOutdatedPage,      ///< recovery maps a page of an earlier volume with the same VID
    kForgetDoubt,            ///< recovery takes a young page with bad contents as never written
    kForgetLostRecords,      ///< recovery takes a page whose record a kill lost as never written
    kAnswerSupersededEarly,  ///< "superseded" is answered before the winner is durable
    kFreeUnitEarly,          ///< a unit is free before the copies of its pages are durable
    kTornNotRecorded,        ///< recovery does not record which pages a power cut tore
    kSkipFirstSync,          ///< recovery does not sync a killed process's pages before using them
    kNoSerialGap,            ///< serials of units whose pages a power cut lost are given out again
    kMovedNotRecorded,       ///< a checkpoint omits entries that moved while it was written
    kMoveKeepsWay,           ///< a moved map entry names the wrong one of its two buckets
    kDamagedCopyNotHeld,     ///< the unit that a damaged page was copied from is erased at once
    kLostBlockNotPut,        ///< recovery does not mark a block whose page is gone as lost
    kOldMapAccepted,         ///< a command under an older map version is executed
    kGrantNeverExpires,      ///< a grant never ends
    kOnlyFirstChunk,         ///< only the first chunk of a command must be on this drive
    kReaderMayWrite,         ///< a client that may read may write
    kOldMapSetAccepted,      ///< MAP SET of an older version takes effect
    kTermUnchecked,          ///< admin commands of an older term are executed
    kEqualRebirth,           ///< a VID may be added again at the last epoch of its deleted volume
    kSameOrderTrimWins,      ///< a trim wins over contents of the same sequence
    kStateCrcIgnored,        ///< the firmware's state is accepted whatever its CRC
    kCopyWindowEmpty,  ///< a rebuild's window does not know the tombstones that its blocks had when it was opened
    kCopyUntoldTrim,     ///< a rebuild's window opens though a trim may be unresolved and without a tombstone
    kCopyKeepsResolved,  ///< a rebuild leaves a resolved version where the donor has none any more
    kCopyKeepsNewer,  ///< a rebuild leaves a version that only the drive has, of a writer that was lost while it was out
    kCopyOverTrim,    ///< a rebuild's copy is put though a newer trim came since its window was opened
    kTrimNotNoted,    ///< an extent that was trimmed does not count as changed
    kMountUnchanged,  ///< after a mount no extent counts as changed
};

}  // namespace gnstor::deengine
