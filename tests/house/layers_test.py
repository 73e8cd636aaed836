#!/usr/bin/env python3
"""The layer rule: who may include whom, and what each layer must stay free of.

Arrows come from the DEPENDS of src/*/CMakeLists.txt; they may only point down the order of docs/design.md, and an #include may
only follow them. The rules are first shown to catch violations on small samples, then applied to the repository.
Run it by itself (python3 tests/house/layers_test.py) or through ctest (house_layers).
"""
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from layer_graph import (COUNTS_AS, ORDER, arrows_of_repository, closure, declared, from_the_bottom_up, layer_of_file,  # noqa: E402
                         path_of_room, rooms_of_layer, rooms_of_text, said_of_layer, said_of_rooms)  # noqa: E402

# Never reachable, whatever DEPENDS says.
FORBIDDEN = {
    "gnor": {"ssd", "deengine", "daemon"},
    "rdma": {"ssd", "deengine"},
    "deengine": {"rdma", "ssd"},
}

# Pure logic takes time and messages as arguments: no threads, clocks, files or sockets.
PURE = {"placement", "deengine"}
# Rooms of other layers that are pure.
PURE_ROOMS = ("src/rdma/roce/", "src/nvmf/auth/")
IMPURE_HEADER = re.compile(
    r"^(thread|mutex|shared_mutex|condition_variable|future|semaphore|latch|barrier|stop_token|chrono|ctime|time\.h|fstream|filesystem|"
    r"cstdio|stdio\.h|unistd\.h|fcntl\.h|pthread\.h|poll\.h|netdb\.h|sys/(socket|mman|stat|time|epoll|uio|types|un)\.h|netinet/.*|arpa/.*|"
    r"gnstor/base/reactor\.hpp|gnstor/simt/time\.hpp)$")

# Memory ordering and lane masks are written once, in simt/.
OUTSIDE_SIMT = [
    (re.compile(r"\bvolatile\b"), "volatile is used in simt/ alone; use simt's atomics"),
    # Not _mm_sfence: it orders stores past the caches, which no release store does.
    (re.compile(r"\b(__threadfence\w*|atomic_thread_fence|__sync_synchronize|_mm_[lm]fence)\b"),
     "a bare fence; ThreadSanitizer cannot see it: order with simt::store_release and simt::load_acquire"),
    (re.compile(r"\b(__syncwarp|__activemask|__(shfl|shfl_up|shfl_down|shfl_xor|ballot|any|all|match_any|match_all|reduce_\w+)_sync|__ballot|__shfl)\b"),
     "a raw warp intrinsic; use simt::Group"),
    (re.compile(r"\b(__lanemask_\w+|__LANEMASK\w*)\b|%lanemask"), "a raw lane mask; use simt::Group"),
]

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]', re.M)
COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|R"\((?:.|\n)*?\)"|"(?:\\.|[^"\\\n])*"', re.S)


def check_arrows(arrows):
    for layer, lowers in sorted(arrows.items()):
        if layer not in ORDER:
            yield f"layer {layer} has no place in the order; add it to ORDER and docs/design.md"
            continue
        for lower in sorted(lowers):
            if lower not in ORDER or ORDER.index(lower) >= ORDER.index(layer):
                yield f"{layer} DEPENDS on {lower}, which is not below it"
        for lower in sorted(closure(arrows, layer) & FORBIDDEN.get(layer, set())):
            yield f"{layer} reaches {lower} through DEPENDS, and must never"


def without_comments_and_strings(text):
    return COMMENT_OR_STRING.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)


def layer_of_include(path):
    if path in COUNTS_AS:
        return COUNTS_AS[path]
    parts = path.split("/")
    if parts[0] == "gnstor" and len(parts) > 2:
        return parts[1] if parts[1] in ORDER else None
    return parts[0] if len(parts) > 1 and parts[0] in ORDER else None


def check_file(layer, name, text, arrows):
    """Violations in one file of a layer; layer None is code that may use all of them (examples, bench)."""
    may = closure(arrows, layer) | {layer} if layer else set(ORDER)
    for match in INCLUDE.finditer(re.sub(r"/\*.*?\*/", "", text, flags=re.S)):
        used = layer_of_include(match.group(1))
        if used and used not in may:
            yield f"{name}: {layer} may not include {match.group(1)} ({used} is not among what it depends on)"
        if (layer in PURE or name.startswith(PURE_ROOMS)) and IMPURE_HEADER.match(match.group(1)):
            yield f"{name}: {layer if layer in PURE else 'this room'} is pure logic and may not include {match.group(1)}"
    if layer == "simt":
        return
    for number, line in enumerate(without_comments_and_strings(text).split("\n"), 1):
        for pattern, why in OUTSIDE_SIMT:
            if pattern.search(line):
                yield f"{name}:{number}: {why}"


def sources(*folders):
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".hpp", ".cpp", ".cu", ".cuh", ".inl", ".h"):
                yield path


ARROWS = {"base": set(), "simt": {"base"}, "nvme": {"simt"}, "placement": {"nvme"}, "rdma": {"nvme"}, "deengine": {"placement"},
          "ssd": {"deengine"}, "gnor": {"rdma", "placement"}}


class TheRulesCatch(unittest.TestCase):
    def caught(self, layer, text, arrows=None):
        return list(check_file(layer, "sample", text, arrows or ARROWS))

    def test_an_include_of_a_layer_above(self):
        self.assertTrue(self.caught("nvme", "#include <gnstor/gnor/channel.hpp>\n"))
        self.assertTrue(self.caught("rdma", '#include "ssd/drive/drive.hpp"\n'))
        self.assertTrue(self.caught("rdma", "#include <gnstor/nvme/vendor.hpp>\n"))

    def test_an_include_of_a_neighbour_without_an_arrow(self):
        self.assertTrue(self.caught("gnor", '#  include "deengine/front/engine.hpp"\n'))
        self.assertTrue(self.caught("deengine", '#include "rdma/nic/nic.hpp"\n'))

    def test_an_arrow_that_points_up(self):
        self.assertTrue(list(check_arrows({**ARROWS, "base": {"nvme"}})))
        self.assertTrue(list(check_arrows({**ARROWS, "gnor": {"placement", "ssd"}})))
        self.assertTrue(list(check_arrows({**ARROWS, "rdma": {"nvme", "deengine"}})))
        self.assertTrue(list(check_arrows({**ARROWS, "newcomer": set()})))

    def test_threads_clocks_files_and_sockets_in_pure_logic(self):
        for header in ("thread", "mutex", "chrono", "fstream", "sys/socket.h", "unistd.h", "gnstor/base/reactor.hpp"):
            self.assertTrue(self.caught("deengine", f"#include <{header}>\n"), header)
        self.assertTrue(self.caught("placement", "#include <chrono>\n"))
        self.assertTrue(list(check_file("rdma", "src/rdma/roce/sample.cpp", "#include <sys/socket.h>\n", ARROWS)))
        self.assertFalse(self.caught("rdma", "#include <sys/socket.h>\n"))

    def test_ordering_and_masks_outside_simt(self):
        for line in ("volatile int x;", "__threadfence_system();", "std::atomic_thread_fence(std::memory_order_seq_cst);",
                     "__syncwarp(mask);", "v = __shfl_sync(m, v, 0);", "auto m = __activemask();", "m = __ballot_sync(~0u, p);"):
            self.assertTrue(self.caught("gnor", line), line)
            self.assertTrue(self.caught(None, line), line)
            self.assertFalse(self.caught("simt", line), line)

    def test_a_circle_of_rooms(self):
        one, other = ("map/a.hpp", '#include "deengine/log/b.hpp"\n'), ("log/b.hpp", '#include "deengine/map/a.hpp"\n')
        self.assertEqual(from_the_bottom_up(rooms_of_text('"deengine/', [one, other])), ([], ["log", "map"]))
        self.assertEqual(from_the_bottom_up(rooms_of_text('"deengine/', [one, ("log/b.hpp", "")])), (["log", "map"], []))

    def test_a_circle_of_rooms_of_public_headers(self):
        top = ("ref.hpp", "#include <gnstor/gnor/detail/path.hpp>\n#include <gnstor/rdma/poller.hpp>\n")
        path = ("detail/path.hpp", "#include <gnstor/gnor/ref.hpp>\n")
        self.assertEqual(from_the_bottom_up(rooms_of_text("<gnstor/gnor/", [top, path])), ([], [".", "detail"]))
        self.assertEqual(from_the_bottom_up(rooms_of_text("<gnstor/gnor/", [top, ("detail/path.hpp", "")])), (["detail", "."], []))

    def test_no_circle_of_a_header_and_its_bodies(self):
        header = ("poller.hpp", "#include <gnstor/rdma/detail/poller.inl>\n")
        bodies = ("detail/poller.inl", "#include <gnstor/rdma/poller.hpp>\n")
        self.assertEqual(rooms_of_text("<gnstor/rdma/", [header, bodies]), {".": {}})

    def test_nothing_in_what_is_allowed(self):
        fine = '// volatile, __syncwarp\n#include <gnstor/nvme/command.hpp>\n#include <vector>\nconst char* s = "volatile"; /* __threadfence */\n'
        self.assertEqual(self.caught("gnor", fine), [])
        self.assertEqual(self.caught("deengine", "#include <algorithm>\n#include <gnstor/placement/placement.hpp>\n"), [])
        self.assertEqual(list(check_arrows(ARROWS)), [])

    def test_what_gn_layer_declares(self):
        self.assertEqual(declared("gn_layer(gnor\n  SOURCES a.cpp b.cpp\n  DEPENDS rdma placement\n  LIBRARIES fmt::fmt)"),
                         ("gnor", {"rdma", "placement"}))


class TheRepository(unittest.TestCase):
    def test_arrows_point_down(self):
        arrows = arrows_of_repository()
        self.assertGreaterEqual(len(arrows), 10, "gn_layer() was found in too few CMakeLists.txt files; has its syntax changed?")
        self.assertEqual(list(check_arrows(arrows)), [])

    def test_rooms_of_a_layer_have_no_circle_and_a_line_each(self):
        for layer in ORDER:
            rooms = rooms_of_layer(layer)
            self.assertEqual(from_the_bottom_up(rooms)[1], [], f"subfolders of {layer} include each other in a circle: ./run lint --layers")
            if len(rooms) > 1:
                self.assertEqual(set(rooms) - {"."} - set(said_of_rooms(layer)), set(),
                                 f"src/{layer}/CMakeLists.txt says in a line '#   ROOM/ ...' what each room is")

    def test_every_layer_says_what_it_is(self):
        for layer in ORDER:
            self.assertTrue(said_of_layer(layer), f"src/{layer}/CMakeLists.txt begins with a comment '# {layer}: ...', one sentence on what it is")

    def test_every_room_that_is_drawn_is_a_folder(self):
        for layer in ORDER:
            for room in rooms_of_layer(layer):
                self.assertTrue((ROOT / path_of_room(layer, room)).is_dir(), path_of_room(layer, room))

    def test_every_include_follows_an_arrow(self):
        arrows, wrong, files = arrows_of_repository(), [], 0
        for path in sources("src", "include", "examples", "bench", "demo"):
            files += 1
            wrong += check_file(layer_of_file(path), str(path.relative_to(ROOT)), path.read_text(), arrows)
        self.assertEqual(wrong, [], "\n" + "\n".join(wrong))
        self.assertGreaterEqual(files, 20)
        print(f"GN_COUNT house_layers_files={files}", file=sys.stdout)


if __name__ == "__main__":
    unittest.main()
