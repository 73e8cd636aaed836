#!/usr/bin/env python3
"""gnstor bench from outside: its examples run, its words reach the benchmark program, and it says so where that program is missing."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

GNSTOR = os.path.abspath(sys.argv.pop(1))
SHORT = ["--repeats", "1", "--seconds", "0.05", "--working-set", "4MiB", "--write-budget", "8MiB", "--engine-threads", "1"]


def gnstor(*arguments, program=GNSTOR):
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=100)


class Bench(unittest.TestCase):
    def test_the_examples_of_its_help_run(self):
        shown = gnstor("bench", "--help")
        self.assertEqual(shown.returncode, 0, shown.stderr)
        # Those of load, whose help follows, are bench_examples' to run.
        own = shown.stdout[:shown.stdout.index("options of load")]
        examples = re.findall(r"^ +gnstor bench (.+?)(?:  +\(.*)?$", own, re.M)
        self.assertEqual(len(examples), 3, shown.stdout)
        for option in ("--path", "--write-percent", "--clients", "--ssds", "--profile", "--output"):
            self.assertIn(option, shown.stdout)
        with tempfile.TemporaryDirectory() as folder:
            for example in examples:
                words = example.replace("figure-13.json", str(pathlib.Path(folder, "figure.json"))).split()
                words = words[:1] + SHORT + words[1:] if words[0] == "paper" else SHORT + words
                # An option that is given twice counts as last given, except where only one may be: leave those of the example.
                for option in ("--seconds",):
                    if words.count(option) == 2:
                        at = words.index(option)
                        del words[at:at + 2]
                with self.subTest(example=example):
                    ended = gnstor("bench", *words)
                    self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)

    def test_json_for_programs_by_the_option_of_every_command(self):
        ended = gnstor("--output", "json", "bench", *SHORT, "--path", "gnor", "--write-percent", "0")
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        self.assertEqual(json.loads(ended.stdout)["benchmark"], "load")

    def test_a_benchmark_that_prints_tables_alone_says_so_where_json_is_asked_for(self):
        for kind in ("model", "paper", "pool", "deengine", "wire"):
            ended = gnstor("--output", "json", "bench", kind)
            self.assertEqual((ended.returncode, ended.stdout), (2, ""), ended.stderr)
            self.assertIn(f"bench {kind} prints only tables", ended.stderr)
            self.assertIn("--json FILE", ended.stderr)

    def test_wrong_words_end_with_2_and_are_named(self):
        for words, word in ((["--path", "spdk"], "gd-deengine"), (["--frobnicate"], "--frobnicate"), (["paper", "--figure", "77", "--json", "x"], "--figure")):
            ended = gnstor("bench", *words)
            self.assertEqual(ended.returncode, 2, ended.stdout + ended.stderr)
            self.assertIn(word, ended.stderr)

    def test_without_the_benchmark_program_it_says_what_is_missing(self):
        with tempfile.TemporaryDirectory() as folder:
            alone = pathlib.Path(folder, "bin", "gnstor")
            alone.parent.mkdir()
            shutil.copy(GNSTOR, alone)
            ended = gnstor("bench", program=str(alone))
            self.assertEqual(ended.returncode, 1)
            self.assertIn("gnstor_bench", ended.stderr)


if __name__ == "__main__":
    unittest.main()
