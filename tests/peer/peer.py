#!/usr/bin/env python3
"""The array against a peer that we did not write: the Linux kernel's NVMe over RDMA, on its RoCEv2 (rxe), in QEMU.

    peer.py list                                     the scenarios and the kernels
    peer.py setup [--kernel 6.1]                     fetches what the guests are made of, and makes them
    peer.py run [--kernel K]... [--scenario S]... [--programs FOLDER] [--keep FOLDER]

`run` puts itself into network and process namespaces of its own: they, and every process in them, are gone when it ends, however
it ends. It exits with 0 if every scenario passed on every kernel, with 1 otherwise, 2 for a wrong command line.
"""
import argparse
import contextlib
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time
import traceback

import image
import network
from common import ROOT, PeerError, say
from guest import Guest
from scenarios import SCENARIOS

INSIDE = "GN_PEER_INSIDE"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0], allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list")
    for name in ("setup", "run"):
        command = commands.add_parser(name)
        command.add_argument("--kernel", action="append", choices=image.KERNELS, help="may be repeated; all without it")
    command.add_argument("--scenario", action="append", choices=SCENARIOS, help="may be repeated; all without it")
    command.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/cpu", help="the build folder with our programs")
    command.add_argument("--keep", type=pathlib.Path, help="a folder for captures, consoles and logs, which are dropped without it")
    options = parser.parse_args()
    os.environ["PATH"] += ":/usr/sbin:/sbin"  # a user's path need not have them
    if options.command == "list":
        for name, scenario in SCENARIOS.items():
            say(f"{name:<10} {scenario.__doc__.splitlines()[0]}")
        say(f"kernels: {', '.join(image.KERNELS)}")
        return 0
    kernels = options.kernel or image.KERNELS
    if options.command == "setup":
        for kernel in kernels:
            say(f"peer: kernel {kernel}: {image.image(kernel).release} in {image.cache_folder()}")
        return 0
    if INSIDE not in os.environ:
        # What needs the outer network comes first.
        for kernel in kernels:
            image.image(kernel)
        return network.isolated([sys.executable, __file__, *sys.argv[1:]], {INSIDE: "1"})
    network.up()
    return run_all(kernels, options.scenario or SCENARIOS, options)


def run_all(kernels, names, options):
    rows, failed = [], 0
    for kernel in kernels:
        for name in names:
            start = time.monotonic()
            say(f"\n--- {name} on Linux {kernel}: {SCENARIOS[name].__doc__.splitlines()[0]}")
            did = run_one(name, kernel, options)
            failed += did is None
            rows.append(f"  {name:<10} {kernel:<5} {'FAILED' if did is None else 'ok':<7} {time.monotonic() - start:5.0f} s  {did or ''}")
    say("\npeer:\n" + "\n".join(rows))
    say(f"GN_COUNT peer_scenarios={len(rows) - failed}")
    return 1 if failed else 0


def run_one(name, kernel, options):
    """What one scenario did, in words; None if it failed."""
    with contextlib.ExitStack() as stack:
        if options.keep:
            folder = options.keep / f"{name}-{kernel}"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        else:
            folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gnstor-peer-")))
        try:
            scenario = SCENARIOS[name](image.image(kernel), folder, options.programs)
            network.set_mtu(scenario.mtu)
            return scenario.run()
        except Exception as error:  # a scenario that breaks in any way has failed; the others run
            if not isinstance(error, PeerError):
                traceback.print_exc()
            say(f"FAILED {name} on Linux {kernel}: {error}")
            return None


def stop(*_):
    sys.exit(130)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop)
    try:
        sys.exit(main())
    except PeerError as failure:
        say(f"peer: {failure}")
        sys.exit(1)
    except KeyboardInterrupt:
        say("peer: interrupted")
        sys.exit(130)
