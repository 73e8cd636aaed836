// checkpoint_bench.hpp: what writes a checkpoint and loads it again, without a shard around it.
#pragma once

#include <gtest/gtest.h>

#include "deengine/log/checkpoint_load.hpp"
#include "deengine/sim/medium.hpp"

#include <vector>

namespace gnstor::deengine {

/// A journal on a medium, and a checkpoint writer over a map of `pages` pages.
struct CheckpointBench {
    explicit CheckpointBench(std::uint64_t map_pages, FlashGeometry geometry = {64, 64})
        : medium([&] {
              sim::MediumOptions o;
              o.geometry = geometry;
              return o;
          }()),
          flash(medium.view(0)),
          pages(map_pages),
          pool(flash, 0, geometry.units),
          map(map_pages),
          tombstones(1000),
          journal(flash, pool),
          writer(journal, pool, map, tombstones, floors, doubts) {
        pool.start(1);
    }
    CheckpointBegin dimensions() const {
        CheckpointBegin d{};
        d.units = pool.units();
        d.pages_per_unit = pool.pages_per_unit();
        d.buckets = map.buckets();
        d.page_bits = map.page_bits();
        return d;
    }
    /// One page, or the wait that it needs.
    void step() {
        (void)writer.step(1, groups);
        if (writer.wants_sync()) {
            groups.durable = groups.current++;
            pool.durable(groups.durable);
        }
    }
    void write_whole() {
        ASSERT_TRUE(writer.start());
        while (writer.active()) step();
        ASSERT_FALSE(writer.failed());
    }
    JournalIndex index() {
        JournalIndex found(flash);
        for (PageNumber p = 0; p < flash.geometry().pages(); ++p) {
            PageOob oob{};
            if (flash.read_oob(p, oob) == FlashStatus::kOk && oob.kind == PageKind::kSystem)
                found.add(p, oob);
        }
        found.sort();
        return found;
    }
    Result<LoadedCheckpoint> load(BlockMap& to, Tombstones& stones) {
        JournalIndex found = index();
        const JournalPlace* end = nullptr;
        for (const JournalPlace& p : found.places())
            if (p.type == JournalPage::kCheckpointEnd) end = &p;
        if (end == nullptr) return error(Errc::kNotFound, "no end");
        return load_checkpoint(found, *end, dimensions(), pages, to, stones);
    }

    sim::Medium medium;
    Flash& flash;
    std::uint64_t pages;
    GroupClock groups;
    UnitPool pool;
    BlockMap map;
    Tombstones tombstones;
    Doubts doubts;
    std::vector<VolumeFloor> floors;
    Journal journal;
    CheckpointWriter writer;
};

}  // namespace gnstor::deengine
