#!/usr/bin/env python3
"""The models of the array's protocol, searched exhaustively with Spin (docs/models.md): no property is violated, every statement is reached, and
the search is complete and as large as it was; with each mutation a property is violated. The models and the code name each other.

MODEL... as arguments: these models alone. --keep FOLDER: works there, and leaves trails for spin -t -p.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "model"
DOCUMENT = ROOT / "docs" / "models.md"
# The least number of states of each model: a model that has lost behaviour has fewer.
STATES = {
    "grants": 34_000,
    "epochs": 1_800_000,
    "map_out": 2_800_000,
    "close_compare": 1_600_000,
    "rebuild_window": 80_000,
}
MEMORY_MIB = 1900
DEPTH = 20_000
NAMED_FILE = re.compile(r"(?:src|include)/[\w/.]+\.(?:hpp|cpp|inl)")


def source(model):
    return (FOLDER / f"{model}.pml").read_text()


def mutations(model):
    return sorted(set(re.findall(r"#ifn?def MUTATION_(\w+)", source(model))))


def search(model, folder, mutation=None):
    """What the search says. A mutation ends soon, so the compiler does not optimise it: that takes longer than its search."""
    folder = pathlib.Path(folder, f"{model}-{mutation}" if mutation else model)
    folder.mkdir()
    shutil.copy(FOLDER / f"{model}.pml", folder)
    defined = [f"-DMUTATION_{mutation}"] if mutation else []
    for words in (["spin", *defined, "-a", f"{model}.pml"],
                  ["gcc", "-O0" if mutation else "-O2", "-w", "-DSAFETY", f"-DMEMLIM={MEMORY_MIB}", "-o", "pan", "pan.c"]):
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            raise AssertionError(f"{' '.join(words)}: {done.stdout}{done.stderr}")
    return subprocess.run(["./pan", f"-m{DEPTH}", "-w22"], cwd=folder, capture_output=True, text=True, timeout=400, check=False).stdout


def number(pattern, said):
    found = re.search(pattern, said)
    if found is None:
        raise AssertionError(f"Spin says nothing of '{pattern}':\n{said}")
    return int(float(found.group(1)))


def unreached(said):
    """Statements that no history reaches, but for the ends of processes, which have none, and assertions that stand behind their own negation."""
    lines = [line.strip() for line in re.findall(r'^\t.*state \d+, ".*"$', said, re.M)]
    return [line for line in lines if '"-end-"' not in line and '"assert(' not in line]


class Searches(unittest.TestCase):
    models = list(STATES)
    folder = None

    def setUp(self):
        if shutil.which("spin") is None:
            # A line of its own: ./run test shows those that begin so.
            print("\nskipped: spin is not installed (Debian: spin)", flush=True)
            self.skipTest("spin is not installed (Debian: spin)")
        if self.folder is None:
            temporary = tempfile.TemporaryDirectory(prefix="gnstor-model-")
            self.addCleanup(temporary.cleanup)
            self.folder = temporary.name

    def test_no_property_is_violated(self):
        for model in self.models:
            with self.subTest(model):
                begun = time.monotonic()
                said = search(model, self.folder)
                self.assertEqual(number(r"errors: (\d+)", said), 0, said)
                self.assertNotRegex(said, r"Search not completed|search depth too small|out of memory")
                self.assertRegex(said, r"assertion violations\s*\+")
                self.assertRegex(said, r"invalid end states\s*\+")
                self.assertLess(number(r"depth reached (\d+)", said), DEPTH - 1)
                self.assertEqual(unreached(said), [])
                states, transitions = number(r"(\S+) states, stored", said), number(r"(\S+) transitions", said)
                self.assertGreaterEqual(states, STATES[model], f"{model} has lost states")
                print(f"{model}: {states:,} states, {transitions:,} transitions, {time.monotonic() - begun:.1f} s", flush=True)
                print(f"GN_COUNT model_states={states}", flush=True)

    def test_every_mutation_is_noticed(self):
        for model in self.models:
            for mutation in mutations(model):
                with self.subTest(f"{model} {mutation}"):
                    begun = time.monotonic()
                    said = search(model, self.folder, mutation)
                    self.assertGreater(number(r"errors: (\d+)", said), 0, said)
                    self.assertIn("assertion violated", said)
                    print(f"{model}: {mutation} is noticed, {time.monotonic() - begun:.1f} s", flush=True)
                    print("GN_COUNT model_mutations=1", flush=True)


class TheText(unittest.TestCase):
    def test_every_model_is_searched(self):
        self.assertEqual({path.stem for path in FOLDER.glob("*.pml")}, set(STATES))

    def test_models_and_code_name_each_other(self):
        """A file of the code that names a model is named in it, and each model is named by two at least."""
        for model in STATES:
            opening = source(model).split("*/")[0]
            named = set(NAMED_FILE.findall(opening))
            self.assertTrue(named, model)
            self.assertEqual([name for name in named if not (ROOT / name).is_file()], [], model)
            names_it = {str(path.relative_to(ROOT)) for layer in ("src", "include") for path in (ROOT / layer).rglob("*.[hci][pn][pl]")
                        if f"tests/model/{model}.pml" in path.read_text()}
            self.assertEqual(sorted(names_it - named), [], f"{model} does not name who names it")
            self.assertGreaterEqual(len(names_it), 2, f"{model} is named by {sorted(names_it)}")

    def test_the_document_names_every_model_and_mutation(self):
        text = DOCUMENT.read_text()
        for model in STATES:
            self.assertIn(f"(../tests/model/{model}.pml)", text)
            for mutation in mutations(model):
                self.assertRegex(text, rf"`{mutation}`", model)
        known = {mutation for model in STATES for mutation in mutations(model)}
        self.assertEqual(set(re.findall(r"`([A-Z]+_[A-Z_]+)`", text)) - known, set())


if __name__ == "__main__":
    words = sys.argv[1:]
    if "--keep" in words:
        Searches.folder = words.pop(words.index("--keep") + 1)
        words.remove("--keep")
    Searches.models = [word for word in words if word in STATES] or Searches.models
    unittest.main(argv=[sys.argv[0], *(word for word in words if word not in STATES)])
