#!/usr/bin/env python3
"""Checks a store of an emulated SSD from outside: an independent reading of docs/store-format.md, sharing no code with the firmware.

    check_store.py STORE                       everything: head, records, journal, checkpoints, recovery's result, all data
    check_store.py STORE --records             all but the data of pages whose record is enough to recover
    check_store.py STORE --block VID:VBA       and where that block lies, with its order and its checksums
    check_store.py STORE --dump FILE           and one line a block: vid vba sequence epoch page state crc of each sector

Exit 0: what the document promises holds. 1: it does not; each line says what, where. 2: wrong usage, or the store cannot be read.
Python's standard library alone. The store must not be in use; it is not written to.
"""
import argparse
import collections
import sys

from store_check.store import Findings, PAGE, Store, Unusable, check_boot, check_metadata
from store_check.medium import Sectors
from store_check.keys import name_of
from store_check.journal import Shard


def block_line(store, shard, key):
    page = shard.map[key]
    r = store.record(page)
    return f"{key >> 32} {key & 0xFFFFFFFF} {r.sequence} {r.epoch} {page} {shard.state_of(page)} " + " ".join(f"{c:08x}" for c in r.crcs)


def show_block(store, shards, text):
    vid, _, vba = text.partition(":")
    key = int(vid) << 32 | int(vba)
    shard = shards[((key & 0xFFFFFFFF) // 256 + int(vid) * 0x9E37) % store.service_units]
    if key in shard.map:
        page = shard.map[key]
        r = store.record(page)
        print(f"{name_of(key)}: page {page} (byte {store.page_at(page)}, record at {store.record_at(page)}), unit {page // store.per_unit} "
              f"of serial {r.serial}, epoch {r.epoch}, sequence {r.sequence}, group {r.group}: {shard.state_of(page)}")
        print("  sectors " + " ".join(f"{c:08x}" for c in r.crcs))
    else:
        trim = shard.trims.find(key)
        print(f"{name_of(key)}: zeroes" + (f", trimmed in epoch {trim[0]} by sequence {trim[1]}" if trim else ", never written"))


def check(options):
    found, counts = Findings(), collections.Counter()
    store = Store(options.store)
    boot = check_boot(store, found)
    volumes = check_metadata(store, boot, found)
    sectors, shards = Sectors(store), []
    if boot and boot["state"] == "emptying":
        found.note(PAGE, "the store was being emptied when its process ended; its contents are void")
    else:
        for index in range(store.service_units):
            shards.append(Shard(store, index, volumes or {}, sectors, found))
            if not hasattr(shards[-1], "named"):
                continue
            shards[-1].check_data(not options.records)
            counts += shards[-1].counts
            counts["blocks"] += len(shards[-1].map)
    if options.dump:
        with open(options.dump, "w", encoding="ascii") as out:
            for shard in shards:
                for key in sorted(shard.map):
                    out.write(block_line(store, shard, key) + "\n")
    if options.block and len(shards) == store.service_units:
        show_block(store, shards, options.block)
    return store, boot, volumes, found, counts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store")
    parser.add_argument("--records", action="store_true")
    parser.add_argument("--dump", metavar="FILE")
    parser.add_argument("--block", metavar="VID:VBA")
    parser.add_argument("--quiet", action="store_true", help="no notes")
    options = parser.parse_args()
    try:
        store, boot, volumes, found, counts = check(options)
    except Unusable as e:
        print(f"damage at byte {e.offset}: {e}")
        return 1
    except (OSError, ValueError) as e:
        print(f"check_store: {options.store}: {e}", file=sys.stderr)
        return 2
    for at, what in sorted(found.damage):
        print(f"damage at byte {at}: {what}")
    for at, what in [] if options.quiet else sorted(found.notes):
        print(f"note at byte {at}: {what}")
    print(f"{options.store}: drive {store.drive}, serial {store.serial}, {boot['state'] + ' with durability ' + boot['mode'] if boot else 'no boot record'}, "
          f"{len(volumes or {})} volumes; " + ", ".join(f"{n} {what}" for what, n in sorted(counts.items())))
    print(f"{len(found.damage)} damages, {len(found.notes)} notes")
    return 1 if found.damage else 0


if __name__ == "__main__":
    sys.exit(main())
