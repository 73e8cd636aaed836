#!/usr/bin/env python3
"""The examples of every benchmark's --help run as they are printed, only shorter: they are taken out of the help itself. An example on an
array of other processes runs on one that is started for it. Arguments: gnstor_bench, and gnstor and gnstord where this build has them."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.abspath(sys.argv.pop(1))
GNSTOR, GNSTORD = (os.path.abspath(p) for p in (sys.argv.pop(1), sys.argv.pop(1))) if len(sys.argv) > 2 else (None, None)
OWN_ENDS = ",".join(f"127.{128 + (os.getpid() >> 8 & 63)}.{os.getpid() & 255}.{end}" for end in (2, 3))
SERVED = ".gnstor"  # the folder that examples name
KINDS = {"load", "path", "model", "paper", "pool", "deengine", "wire"}
# What makes a run short, by benchmark; an option of the example's own is replaced. Sizes are those of program_test.py and
# load_program_test.py: here it counts that each example runs, and most of the time of a larger one is the kernel clearing pages.
LOAD = {"--repeats": "1", "--seconds": "0.05", "--working-set": "4MiB", "--write-budget": "8MiB", "--engine-threads": "1"}
SHORT = {
    "load": LOAD, "paper": {**LOAD, "--working-set": "8MiB"}, "path": LOAD,
    "model": {**LOAD, "--seconds": "0.1", "--write-budget": "64MiB", "--depths": "1", "--loads": "0.001"},
    "pool": {"--repeats": "1", "--allocations": "20000", "--pool": "8MiB"},
    "deengine": {"--repeats": "1", "--map-slots": "262144", "--path-blocks": "8192", "--data": "16MiB", "--wear-blocks": "16384",
                 "--recover-blocks": "16384", "--cores": "1"},
    # Ends of this process's own: nobody else of this machine is in the way on theirs.
    "wire": {"--repeats": "1", "--seconds": "0.1", "--depth": "4", "--addresses": OWN_ENDS},
}


def bench(*arguments, folder=None):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=200, cwd=folder)


def examples_of(text):
    """The command lines, without `gnstor bench` and without what a reader is told behind them."""
    return [line.split() for line in re.findall(r"^ +gnstor bench (.+?)(?:  +\(.*)?$", text, re.M)]


def shortened(words):
    kind, rest = (words[0], words[1:]) if words[0] in KINDS else ("load", words)
    short, at = dict(SHORT[kind]), 0
    if "--array" in rest:  # it is what it is
        for option in ("--engine-threads", "--write-budget"):
            del short[option]
    kept = []
    while at < len(rest):
        if rest[at] in short:
            at += 2
            continue
        kept.append(rest[at])
        at += 1
    return [kind, *kept, *(word for pair in short.items() for word in pair)]


def gnstor(*arguments, folder):
    done = subprocess.run([GNSTOR, *arguments, "--dir", SERVED], capture_output=True, text=True, timeout=200, cwd=folder, env=dict(os.environ, GNSTORD=GNSTORD))
    assert done.returncode == 0, done.stdout + done.stderr


class Examples(unittest.TestCase):
    def test_every_help_has_some_and_each_runs(self):
        ran = 0
        for kind in [None, *sorted(KINDS)]:
            shown = bench(*([kind] if kind else []), "--help")
            self.assertEqual(shown.returncode, 0, shown.stderr)
            examples = examples_of(shown.stdout)
            self.assertTrue(examples, f"no example in the help of {kind}")
            for words in examples:
                if kind:
                    self.assertEqual(words[0] if words[0] in KINDS else "load", kind)
                with self.subTest(words=words), tempfile.TemporaryDirectory() as folder:
                    if "--array" in words and not GNSTOR:
                        continue  # a build without processes to serve one
                    if "--array" in words:
                        gnstor("up", "--nodes", "2", "--ssds", "1", "--capacity", "256MiB", "--durability", "process", folder=folder)
                    ended = bench(*shortened(words), folder=folder)
                    if "--array" in words:
                        gnstor("down", folder=folder)
                    # Whether modelled hardware is what its profile says is a matter of the machine.
                    self.assertIn(ended.returncode, (0, 3) if kind == "model" or words[0] == "model" else (0,), ended.stdout + ended.stderr)
                    for option, name in zip(words, words[1:]):
                        if option == "--json":
                            self.assertTrue(pathlib.Path(folder, name).is_file(), f"{name} was not written")
                    ran += 1
        print(f"\nGN_COUNT bench_examples={ran}", flush=True)

    def test_none_is_left_out_here_or_by_gnstor(self):
        listed = bench("--help").stdout.split("Subcommands:\n", 1)[1].split("\n\n", 1)[0]
        self.assertEqual({line.split()[0] for line in listed.splitlines()}, KINDS)
        for kind in sorted(KINDS) if GNSTOR else []:
            shown = subprocess.run([GNSTOR, "bench", kind, "--help"], capture_output=True, text=True, timeout=100)
            self.assertIn(f"Usage: gnstor_bench {kind} ", shown.stdout, shown.stderr)  # words without a kind go to `load`


if __name__ == "__main__":
    unittest.main()
