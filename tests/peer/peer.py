#!/usr/bin/env python3
"""The array against a peer that we did not write: the Linux kernel's NVMe over RDMA, on its RoCEv2 (rxe), in QEMU.

    peer.py list                                     the scenarios and the kernels
    peer.py setup [--kernel 6.1]                     fetches what the guests are made of, and makes them
    peer.py run [--kernel K]... [--scenario S]... [--short] [--programs FOLDER] [--keep FOLDER]

`run` puts itself into network and process namespaces of its own: they, and every process in them, are gone when it ends, however
it ends. Several kernels run side by side, each in namespaces of its own. It exits with 0 if every scenario passed on every kernel, with 1
otherwise, 2 for a wrong command line.
"""
import argparse
import contextlib
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import image
import network
from common import ROOT, PeerError, say
from guest import Guest
from scenarios import SCENARIOS

INSIDE = "GN_PEER_INSIDE"
# What --short runs: every scenario against us, and both kernels as hosts and as targets.
SHORT = {"6.1": ["initiator", "gateway", "target", "lossy"], "6.12": ["initiator", "gateway", "thin", "target", "nodes", "auth-host", "auth-target"]}
# Of all: those that are about packets of another size run on one kernel. Debian's 6.1 is built without in-band authentication.
ONLY = {"initiator-3000": "6.1", "target-9000": "6.12", "auth-host": "6.12", "auth-target": "6.12"}
ALL = {kernel: [name for name in SCENARIOS if ONLY.get(name, kernel) == kernel] for kernel in image.KERNELS}
SECONDS_MOST = 2400  # of all of it; the waits inside are bounded as well, one by one


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0], allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list")
    for name in ("setup", "run"):
        command = commands.add_parser(name)
        command.add_argument("--kernel", action="append", choices=image.KERNELS, help="may be given several times; default: all")
    command.add_argument("--scenario", action="append", choices=SCENARIOS, help="may be given several times; default: all")
    command.add_argument("--short", action="store_true", help="run only the scenarios of each kernel that continuous integration has time for")
    command.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/cpu", help="build folder that holds GNStor's programs")
    command.add_argument("--keep", type=pathlib.Path, help="folder in which captures, consoles and logs are kept; by default they are deleted")
    options = parser.parse_args()
    os.environ["PATH"] += ":/usr/sbin:/sbin"  # a user's path need not have them
    if options.command == "list":
        for name, scenario in SCENARIOS.items():
            say(f"{name:<14} {scenario.__doc__.splitlines()[0]}")
        say(f"kernels: {', '.join(image.KERNELS)}")
        return 0
    kernels = list(dict.fromkeys(options.kernel or image.KERNELS))
    if options.command == "setup":
        for kernel in kernels:
            say(f"peer: kernel {kernel}: {image.image(kernel).release} in {image.cache_folder()}")
        return 0
    scenarios = {kernel: options.scenario or (SHORT if options.short else ALL)[kernel] for kernel in kernels}
    if INSIDE in os.environ:
        network.up()
        return run_all(kernels[0], scenarios[kernels[0]], options)
    # What needs the outer network comes first.
    for kernel in kernels:
        image.image(kernel)
    if len(kernels) > 1:
        return side_by_side(scenarios, options)
    words = [word for name in scenarios[kernels[0]] for word in ("--scenario", name)]
    return network.isolated([sys.executable, __file__, *words_of(options, kernels[0], words)], {INSIDE: "1"})


def words_of(options, kernel, more):
    keep = ["--keep", str(options.keep)] if options.keep else []
    return ["run", "--kernel", kernel, *more, "--programs", str(options.programs), *keep]


def side_by_side(scenarios, options):
    """Each kernel in a process of its own; their lines as they come, which kernel's, but for those that programs look for."""
    processes, readers = {}, []
    for kernel, names in scenarios.items():
        words = words_of(options, kernel, [word for name in names for word in ("--scenario", name)])
        process = subprocess.Popen([sys.executable, "-u", __file__, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   errors="replace")
        processes[kernel] = process
        readers.append(threading.Thread(target=relay, args=(kernel, process.stdout), daemon=True))
        readers[-1].start()
    end = time.monotonic() + SECONDS_MOST
    try:
        for kernel, process in processes.items():
            try:
                process.wait(max(end - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                say(f"FAILED Linux {kernel}: the scenarios did not end within {SECONDS_MOST} s")
    finally:
        for process in processes.values():
            process.kill()  # its namespaces end with it
            process.wait()
        for reader in readers:
            reader.join(10)
    return int(any(process.returncode != 0 for process in processes.values()))


def relay(kernel, lines):
    for line in lines:
        bare = line.startswith(("GN_COUNT ", "FAILED "))
        say(line.rstrip() if bare or not line.strip() else f"{kernel:<4} | {line.rstrip()}")


def run_all(kernel, names, options):
    rows, failed = [], 0
    for name in names:
        start = time.monotonic()
        say(f"\n--- {name} on Linux {kernel}: {SCENARIOS[name].__doc__.splitlines()[0]}")
        did = run_one(name, kernel, options)
        failed += did is None
        rows.append(f"  {name:<14} {kernel:<5} {'FAILED' if did is None else 'ok':<7} {time.monotonic() - start:5.0f} s  {did or ''}")
    used = sum(of.ru_utime + of.ru_stime for of in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))
    say(f"\npeer: Linux {kernel}, {used:.0f} s of processor time:\n" + "\n".join(rows))
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
