#!/usr/bin/env python3
"""man_pages.py BIN FOLDER [VERSION]: manual pages of gnstor, of each of its subcommands and of gnstord, from what they say to --help.

BIN is the folder of both programs, FOLDER is where the pages go (made new). help2man lays them out. Prints each page's name.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

# help2man begins a page's name with the program as it was called; these are called by name, through PATH.
TITLES = {1: "User Commands", 8: "System Administration"}


def help_of(words, environment):
    return subprocess.run([*words, "--help"], capture_output=True, text=True, check=True, env=environment).stdout


def subcommands(text):
    """(name, what it does) of each, from the part of --help that lists them."""
    part = re.search(r"^Subcommands:\n((?:  .*\n?)+)", text, re.MULTILINE)
    return re.findall(r"^  (\S+)\s+(\S.*)$", part.group(1), re.MULTILINE) if part else []


def all_commands(words, about, environment):
    """words and every subcommand below them, depth first, with one line about each."""
    yield words, about
    for name, line in subcommands(help_of(words, environment)):
        yield from all_commands([*words, name], line, environment)


def write_page(words, about, section, version, others, folder, environment):
    name = "-".join(words)
    see = folder / f"{name}.include"
    see.write_text("[SEE ALSO]\n" + ",\n".join(f".BR {other} ({number})" for other, number in others) + "\n")
    page = folder / f"{name}.{section}"
    # The usage line shows the path of the program: pages are the same wherever it was built.
    text = subprocess.run(
        ["help2man", "--no-info", f"--section={section}", f"--manual={TITLES[section]}", "--source=GNStor",
         f"--version-string={version}", f"--name={about}", f"--include={see}", " ".join(words)],
        capture_output=True, text=True, check=True, env=environment).stdout
    see.unlink()
    page.write_text(text.replace(environment["HOME"] + "/", "~/"))
    print(page.name)


def main():
    binaries, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    version = sys.argv[3] if len(sys.argv) > 3 else "0"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    environment = {"PATH": f"{binaries}:{os.environ['PATH']}", "HOME": "/home/of/a/user", "LC_ALL": "C",
                   "SOURCE_DATE_EPOCH": os.environ.get("SOURCE_DATE_EPOCH", "0")}
    about = "an all-flash array that GPU kernels read and write directly"
    pages = list(all_commands(["gnstor"], about, environment))
    names = {tuple(words): ("-".join(words), 1) for words, _ in pages}
    for words, line in pages:
        below = [names[other] for other in names if len(other) == len(words) + 1 and other[:len(words)] == tuple(words)]
        above = [names[tuple(words[:-1])]] if len(words) > 1 else [("gnstord", 8)]
        write_page(words, line, 1, version, above + below, folder, environment)
    write_page(["gnstord"], "the daemon of a GNStor array", 8, version, [("gnstor", 1), ("gnstor-up", 1)], folder, environment)


if __name__ == "__main__":
    main()
