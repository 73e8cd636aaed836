#!/usr/bin/env python3
"""The device poster, compiled to PTX, stores in the order that a NIC relies on, along every path.

ThreadSanitizer cannot see a missing GPU fence; this test reads what the compiler made of the source. It compiles
poster_gate.cu, follows the control flow of each kernel and asserts, for every path:

  entry stores (4 x 16 bytes)  ->  hand-over by an acq_rel atomic  ->  st.release.sys (doorbell record)
                               ->  fence.acq_rel.sys               ->  exactly one 64-bit st.mmio (the bell)

The fast path of a single lane shares its fences among what it hands over, and so has an order of its own:

  capsule and entry (8 x 16 bytes)  ->  fence.acq_rel.sys  ->  the doorbell record and the completion queue's
  consumer record  ->  fence.acq_rel.sys  ->  the bell  ->  receive records, which rely on the second fence

Then it proves that it can fail: it breaks the PTX in every way named in MUTATIONS, and each must be found.
PTX ISA 8.7: 8 (memory consistency model), 9.7.9.12 (st, st.mmio), 9.7.13.4 (fence).
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile


class Broken(Exception):
    """A rule of the order does not hold; the text says which."""


class Kernel:
    """The statements of one kernel and where each may go next."""

    def __init__(self, name, body):
        self.name = name
        self.text, labels = [], {}
        body = re.sub(r"//[^\n]*", "", body)
        for piece in re.split(r"[;{}]\s*(?=\n|$)|;", body):
            piece = " ".join(piece.split())
            while match := re.match(r"(\$\w+):\s*", piece):
                labels[match.group(1)] = len(self.text)
                piece = piece[match.end():]
            piece = piece.lstrip("{ ").strip()
            if piece and not piece.startswith("."):
                self.text.append(piece)
        self.text.append("<end>")
        self.next = [self._successors(i, labels) for i in range(len(self.text))]

    def _successors(self, i, labels):
        words = re.match(r"(@!?%\w+\s+)?(\S+)\s*(\S*)", self.text[i])
        operation, target = words.group(2), words.group(3)
        following = [i + 1] if i + 1 < len(self.text) else []
        if operation in ("bra", "bra.uni"):
            if target not in labels:
                raise Broken(f"branch to an unknown label {target}")
            return [labels[target]] + (following if words.group(1) else [])
        if operation in ("brx.idx", "call", "call.uni"):
            raise Broken(f"'{self.text[i]}': the paths of this kernel can not be followed")
        if operation in ("ret", "exit", "trap"):
            return following if words.group(1) else []
        return following

    def find(self, pattern):
        """Statements whose operation matches, whatever predicate stands before."""
        return [i for i, s in enumerate(self.text) if re.match(r"(@!?%\w+\s+)?" + pattern, s)]

    def reach(self, starts, avoiding=()):
        """All statements on paths that begin at `starts` and stop at `avoiding`."""
        avoiding, seen, todo = set(avoiding), set(), list(starts)
        while todo:
            i = todo.pop()
            if i in seen or i in avoiding:
                continue
            seen.add(i)
            todo.extend(self.next[i])
        return seen

    def after(self, i):
        return self.next[i]


ENTRY_STORE = r"st(\.weak)?(\.global)?\.v4\.[bu]32\b"
RECORD = r"st\.release\.sys(\.global)?\.[bu]32\b"
FENCE = r"fence\.(acq_rel|sc)\.sys\b"
MMIO_ANY = r"st\S*\.mmio\b"
MMIO = r"st\.mmio\.relaxed\.sys(\.global)?\.[bu]64\b"
HAND_OVER = r"(atom\.acq_rel\.(gpu|sys)|bar\.warp\.sync|barrier\.warp\.sync)"
ANY_STORE = r"(st|atom|red)\."


def rule(holds, text):
    if not holds:
        raise Broken(text)


def unconditional(kernel, statements):
    return all(not kernel.text[i].startswith("@") for i in statements)


def check(kernel, entry_store_on_every_path):
    """Raises Broken unless the order holds on every path. Returns what was matched, in order."""
    entries, records = kernel.find(ENTRY_STORE), kernel.find(RECORD)
    fences, bells = kernel.find(FENCE), kernel.find(MMIO)
    rule(len(kernel.find(MMIO_ANY)) == 1, f"{len(kernel.find(MMIO_ANY))} mmio stores in the text, not one")
    rule(len(bells) == 1, "the mmio store is not a 64-bit relaxed store of system scope")
    rule(len(records) == 1, f"{len(records)} system-scope release stores of 32 bits (the doorbell record), not one")
    rule(len(entries) == 4, f"{len(entries)} stores of 16 bytes for an entry of 64 bytes, not four")
    bell, record = bells[0], records[0]
    rule(unconditional(kernel, fences + [record, bell] + entries), "a piece of the order is predicated: some path skips it")

    rule(bell in kernel.reach([0]), "the bell can not be reached")
    rule(bell not in kernel.reach([0], avoiding=[record]), "a path rings the bell without the doorbell record before")
    rule(bell not in kernel.reach(kernel.after(record), avoiding=fences),
         "a path from the doorbell record to the bell has no system-scope release")
    guards = [f for f in fences if bell in kernel.reach(kernel.after(f), avoiding=fences)]
    for fence in guards:
        between = kernel.reach(kernel.after(fence), avoiding=[bell] + fences)
        leading = [i for i in between if bell in kernel.reach([i], avoiding=fences)]
        stores = [i for i in leading if i in kernel.find(ANY_STORE)]
        rule(not stores, f"a store lies between the release and the bell: {[kernel.text[i] for i in stores]}")
    rule(record not in kernel.reach(kernel.after(record), avoiding=[bell]), "a doorbell record is written twice before a bell")
    rule(bell not in kernel.reach(kernel.after(bell), avoiding=[record]), "a bell is rung twice for one doorbell record")

    late = [i for i in entries if i in kernel.reach(kernel.after(record))]
    rule(not late, f"an entry store may come after the doorbell record: {[kernel.text[i] for i in late]}")
    hand_overs = kernel.find(HAND_OVER)
    for entry in entries:
        rule(record in kernel.reach(kernel.after(entry)), f"no path leads from '{kernel.text[entry]}' to the record")
        rule(record not in kernel.reach(kernel.after(entry), avoiding=hand_overs),
             f"a path from '{kernel.text[entry]}' to the record has no release among lanes")
        if entry_store_on_every_path:
            rule(record not in kernel.reach([0], avoiding=[entry]), f"a path reaches the record without '{kernel.text[entry]}'")
    return [kernel.text[i] for i in entries + [record] + guards + [bell]]


RECORD_OF_MANY = r"st\.relaxed\.sys(\.global)?\.[bu]32\b"


def fewest(kernel, statements, goal):
    """How many of `statements` the path with the fewest passes from the start to one of `goal`."""
    fewest_to, todo = {0: 0}, [0]
    while todo:
        i = todo.pop()
        if i in goal:
            continue
        count = fewest_to[i] + (i in statements)
        for after in kernel.after(i):
            if count < fewest_to.get(after, 1 << 30):
                fewest_to[after] = count
                todo.append(after)
    return min((fewest_to[i] for i in goal if i in fewest_to), default=0)


def check_single_lane(kernel):
    """As check, for the fast path: two fences, between them the records, behind the second the rest."""
    entries, records, fences = kernel.find(ENTRY_STORE), kernel.find(RECORD_OF_MANY), kernel.find(FENCE)
    bells = kernel.find(MMIO)
    rule(len(kernel.find(MMIO_ANY)) == 1 and len(bells) == 1, "not one mmio store, 64-bit, relaxed, of system scope")
    bell = bells[0]
    rule(bell in kernel.reach([0]), "the bell can not be reached")
    rule(bell not in kernel.reach(kernel.after(bell)), "the bell may be rung twice")
    rule(len(fences) == 2, f"{len(fences)} system-scope fences, not two")
    early = [i for i in records if bell in kernel.reach(kernel.after(i))]
    late = [i for i in records if i not in early]
    rule(len(early) == 2, f"{len(early)} records before the bell, not the doorbell record and the consumer record")
    rule(late, "no receive record behind the bell")
    rule(unconditional(kernel, fences + early + [bell] + entries), "a piece of the order is predicated: some path skips it")
    stored = fewest(kernel, entries, early)
    rule(stored == 8, f"a path stores {stored} times 16 bytes of capsule and entry before a record, not eight times")
    for record in early:
        rule(bell not in kernel.reach([0], avoiding=[record]), "a path rings the bell without one of the records before")
        rule(record not in kernel.reach([0], avoiding=fences), "a path reaches a record without a release before")
        rule(bell not in kernel.reach(kernel.after(record), avoiding=fences), "a path from a record to the bell has no release")
        after = [i for i in entries if i in kernel.reach(kernel.after(record))]
        rule(not after, f"a store of capsule or entry may come after a record: {[kernel.text[i] for i in after]}")
        for receive in late:
            rule(receive not in kernel.reach(kernel.after(record), avoiding=fences),
                 "a path from a record to a receive record has no release")
    for entry in entries:
        rule(not set(early) & kernel.reach(kernel.after(entry), avoiding=fences),
             f"a path from '{kernel.text[entry]}' to a record has no release")
    second = [f for f in fences if bell in kernel.reach(kernel.after(f), avoiding=fences)]
    rule(len(second) == 1, "not one fence is the bell's")
    between = [i for i in kernel.reach(kernel.after(second[0]), avoiding=[bell]) if bell in kernel.reach([i])]
    stores = [kernel.text[i] for i in between if i in kernel.find(ANY_STORE)]
    rule(not stores, f"a store lies between the second fence and the bell: {stores}")
    return [kernel.text[i] for i in entries + [fences[0]] + early + [fences[1], bell] + late]


def kernels_of(ptx):
    found = {}
    for match in re.finditer(r"\.entry\s+(\w+)\s*\(", ptx):
        start = ptx.index("\n{", match.end())
        end = ptx.index("\n}", start)
        found[match.group(1)] = Kernel(match.group(1), ptx[start + 2:end])
    return found


def body_span(ptx, name):
    start = ptx.index("\n{", ptx.index(f".entry {name}"))
    return start, ptx.index("\n}", start)


# Ways to break the order: (what it stands for, pattern in the kernel, replacement).
RECORD_LINE, FENCE_LINE = r"\n[^\n]*st\.release\.sys\.u32[^\n]*", r"\n[^\n]*fence\.acq_rel\.sys;"
BELL_LINE = r"\n[^\n]*st\.mmio[^\n]*"
BELL_MUTATIONS = [
    ("the bell is not rung", BELL_LINE, ""),
    ("the bell is rung twice", f"({BELL_LINE})", r"\1\1"),
    ("the bell is an ordinary store", r"st\.mmio\.relaxed\.sys\.global\.u64", "st.relaxed.sys.global.u64"),
    ("the bell is 32 bits wide", r"st\.mmio\.relaxed\.sys\.global\.u64", "st.mmio.relaxed.sys.global.u32"),
]
MUTATIONS = [
    ("the record is stored without a release", r"st\.release\.sys\.u32", "st.relaxed.sys.u32"),
    ("the record is released to the GPU alone", r"st\.release\.sys\.u32", "st.release.gpu.u32"),
    ("the record is not written", RECORD_LINE, ""),
    ("the record is written for some lanes only", r"st\.release\.sys\.u32", "@%p1 st.release.sys.u32"),
    ("no release before the bell", FENCE_LINE, ""),
    ("the release before the bell reaches the GPU alone", r"fence\.acq_rel\.sys", "fence.acq_rel.gpu"),
    ("the release comes after the bell", f"({FENCE_LINE})(.*?)({BELL_LINE})", r"\2\3\1"),
    *BELL_MUTATIONS,
    ("the bell comes before the record", f"({RECORD_LINE})(.*?)({FENCE_LINE})(.*?)({BELL_LINE})", r"\2\3\4\5\1"),
    ("a store slips between release and bell", f"({FENCE_LINE})", r"\1\n\tst.relaxed.sys.u32 [%rd1], %r1;"),
    ("a quarter of the entry is not written", r"\n[^\n]*st\.global\.v4\.[bu]32[^\n]*\+48\][^\n]*", ""),
    ("a quarter of the entry is written after the record",
     f"(\n[^\n]*st\\.global\\.v4\\.[bu]32[^\n]*\\+48\\][^\n]*)(.*?)({RECORD_LINE})", r"\2\3\1"),
    ("nothing releases the entry among lanes", r"atom\.acq_rel\.gpu\.exch|bar\.warp\.sync|atom\.acq_rel\.gpu\.(cas|or)",
     "atom.relaxed.gpu.exch"),
    ("a branch jumps past the record and its release", f"({RECORD_LINE})(.*?)({FENCE_LINE})",
     r"\n\t@%p1 bra $L__skip;\1\2\3\n$L__skip:"),
]


# The same for the fast path. Its first fence, the two records, its second fence, the bell, a receive record:
SEVERAL = r"\n[^\n]*st\.relaxed\.sys\.u32[^\n]*"
ORDER = f"({FENCE_LINE})(.*?)({SEVERAL})(.*?)({SEVERAL})(.*?)({FENCE_LINE})(.*?)({BELL_LINE})(.*?)({SEVERAL})"
QUARTER = r"\n[^\n]*st\.global\.v4\.[bu]32[^\n]*\+48\][^\n]*"
SINGLE_LANE_MUTATIONS = [
    ("no release before the records", ORDER, r"\2\3\4\5\6\7\8\9\10\11"),
    ("the release before the records reaches the GPU alone", ORDER, r"\n\tfence.acq_rel.gpu;\2\3\4\5\6\7\8\9\10\11"),
    ("no release before the bell", ORDER, r"\1\2\3\4\5\6\8\9\10\11"),
    ("the release before the bell reaches the GPU alone", ORDER, r"\1\2\3\4\5\6\n\tfence.acq_rel.gpu;\8\9\10\11"),
    ("the first record comes before the release", ORDER, r"\2\3\1\4\5\6\7\8\9\10\11"),
    ("the second record comes behind the second release", ORDER, r"\1\2\3\4\6\7\5\8\9\10\11"),
    ("the second record comes behind the bell", ORDER, r"\1\2\3\4\6\7\8\9\5\10\11"),
    ("the first record is not written", ORDER, r"\1\2\4\5\6\7\8\9\10\11"),
    ("the second record is not written", ORDER, r"\1\2\3\4\6\7\8\9\10\11"),
    ("a receive record comes before the second release", ORDER, r"\1\2\3\4\5\11\6\7\8\9\10"),
    ("a receive record is not written", ORDER, r"\1\2\3\4\5\6\7\8\9\10"),
    ("a record is written for some lanes only", ORDER, r"\1\2\n\t@%p1 st.relaxed.sys.u32 [%rd1], %r1;\4\5\6\7\8\9\10\11"),
    ("a branch jumps past the records and their release", ORDER,
     r"\n\t@%p1 bra $L__skip;\1\2\3\4\5\6\7\n$L__skip:\8\9\10\11"),
    ("a store slips between release and bell", ORDER,
     r"\1\2\3\4\5\6\7\n\tst.relaxed.sys.u64 [%rd1], %rd1;\8\9\10\11"),
    *BELL_MUTATIONS,
    ("a quarter of capsule or entry is not written", QUARTER, ""),
    ("a quarter is written behind the release", f"({QUARTER})(.*?)({FENCE_LINE})", r"\2\3\1"),
]


def self_test(ptx, name, check, mutations):
    """Every mutation must be applicable, and found."""
    start, end = body_span(ptx, name)
    for what, pattern, replacement in mutations:
        mutated, count = re.subn(pattern, replacement, ptx[start:end], flags=re.S)
        if count == 0:
            raise Broken(f"mutation '{what}' did not apply to {name}: the self-test tests nothing")
        try:
            check(kernels_of(ptx[:start] + mutated + ptx[end:])[name])
        except Broken as found:
            print(f"  mutated: {what}\n    found: {str(found)[:110]}")
            continue
        raise Broken(f"mutation '{what}' of {name} was not found")


def compile_to_ptx(nvcc, source, include, arch):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "gate.ptx"
        command = [nvcc, "-ptx", "-std=c++20", f"-arch={arch}", "-DFMT_USE_CONSTEXPR=1", "-I", include, source, "-o", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=280)
        if done.returncode != 0:
            raise Broken(f"nvcc failed: {' '.join(command)}\n{done.stdout}{done.stderr}")
        return out.read_text()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--include", required=True, help="the project's include folder")
    parser.add_argument("--source", default=str(pathlib.Path(__file__).with_name("poster_gate.cu")))
    parser.add_argument("--arch", default="sm_90")
    arguments = parser.parse_args()
    try:
        ptx = compile_to_ptx(arguments.nvcc, arguments.source, arguments.include, arguments.arch)
        kernels = kernels_of(ptx)
        # In the warp's kernel a lane without a ticket fills nothing, so its path has no entry stores.
        gates = (("gate_one_lane", lambda k: check(k, True), MUTATIONS), ("gate_warp", lambda k: check(k, False), MUTATIONS),
                 ("gate_single_lane", check_single_lane, SINGLE_LANE_MUTATIONS))
        for name, holds, mutations in gates:
            rule(name in kernels, f"no kernel {name} in the PTX")
            print(f"{name}: {len(kernels[name].text)} statements; found in this order on every path:")
            for line in holds(kernels[name]):
                print(f"  {line}")
            self_test(ptx, name, holds, mutations)
        print(f"{len(gates)} kernels in order, {sum(len(m) for _, _, m in gates)} mutations found")
    except Broken as broken:
        print(f"FAILED: {broken}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
