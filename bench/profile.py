#!/usr/bin/env python3
"""Where the CPU time of `bench path` goes: samples of Linux perf, by thread, stage and function. Of GPU lanes, that of the engine threads.

    bench/profile.py PROGRAM [--lanes cpu|gpu] [--ops read,write] [--bytes 4096] [--seconds 6] [--out FILE] [-- more options of `bench path`]

Runs the program once an operation under `perf record` (software clock, no hardware counters needed), skips the time in which the array
is filled, and divides the sampled shares by the operations that lanes completed: CPU time an operation, by stage and by function. The
text goes to standard output or to FILE; docs/performance.md shows the shares of such texts in docs/runs.
"""
import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile

# The first pattern that a symbol matches names its stage. Inlined functions count where they were inlined.
STAGES = (
    ("gn-pages: memory of drives, ahead of its use", r"^gn-pages$"),
    ("payload: copy and CRC-32C", r"copy_sectors_crc32c|copy_by_vectors|crc32_iscsi|crc32c|memcpy|memmove"),
    ("benchmark's own work", r"gnstor::bench::|introsort|insertion_sort|unguarded_linear"),
    ("kernel: page faults", r"page_fault|anonymous_page|clear_page|handle_mm_fault|get_page_from|memcg|charge|folio|zap_|unmap|rmqueue|"
                            r"alloc_pages|alloc_frozen|lru_|rcu_read|vma|__pte|pte_|error_entry|free_unref|free_pcp|mmap_lock|cgroup|mod_node|"
                            r"asm_exc|sync_regs|up_read|down_read|list_del|prep_new|numa|mas_|mt_|xas_"),
    ("kernel: scheduler and clock", r"sched|futex|hrtimer|nanosleep|clock|tick|timekeeping|entry_SYSCALL|do_syscall|syscall|switch_|finish_task|"
                                    r"raw_spin|pick_|update_|dequeue|enqueue|yield|pvclock|native_|_cond_resched|rseq|signal"),
    ("gnor: issue and completion", r"gnstor::gnor::|gnstor::Batch|gnstor::VolumeRef|gnstor::ChannelRef|gnstor::rdma::poll|rdma::detail::poll|"
                                   r"try_reserve|publish|placement::|simt::|gnstor::nvme::encode"),
    ("clock reads", r"clock_gettime|vdso|now_ns"),
    ("software NIC", r"gnstor::rdma::"),
    ("target offload", r"gnstor::nvmf::"),
    ("drive's queues and data pointers", r"gnstor::ssd::(CommandPath|NvmeQueue|Data|Drive|Completion|Submission|decode|resolve)"),
    ("flash and out-of-band records", r"gnstor::ssd::"),
    ("deEngine: checks and block map", r"gnstor::deengine::|gnstor::nvme::"),
    ("engine thread's loop", r"gnstor::Reactor"),
)


def stage_of(symbol, kernel):
    for name, pattern in STAGES:
        if kernel != name.startswith("kernel"):
            continue
        if re.search(pattern, symbol):
            return name
    return "kernel: other" if kernel else "other"


def short(symbol):
    """Without template arguments and parameters."""
    out, depth = "", 0
    for c in symbol.replace("(anonymous namespace)", "anonymous"):
        depth += c in "<("
        if depth == 0:
            out += c
        depth -= c in ">)"
    return out.replace("gnstor::", "")[:60]


def sample(program, operation, arguments, more):
    """(samples as Counter of (thread, symbol, kernel), the case of the raw result, what the program printed)"""
    with tempfile.TemporaryDirectory() as folder:
        data, result = pathlib.Path(folder, "perf.data"), pathlib.Path(folder, "result.json")
        command = [program, "path", "--lanes", arguments.lanes, "--ops", operation, "--sizes", str(arguments.bytes), "--repeats", "1", "--no-reference",
                   "--seconds", str(arguments.seconds), "--json", str(result), *more]
        delay = str(int(arguments.delay * 1000))
        done = subprocess.run(["perf", "record", "-q", "-e", "cpu-clock", "-F", "4999", "-D", delay, "-o", str(data), "--", *command],
                              capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"profile: {' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        text = subprocess.run(["perf", "script", "-i", str(data), "-F", "comm,ip,sym,dso"], capture_output=True, text=True, check=True).stdout
        counts = collections.Counter()
        for line in text.splitlines():
            match = re.match(r"\s*(\S+)\s+[0-9a-f]+ (.*) \(([^()]*)\)$", line)
            if match and (match[1].startswith("gn-") or arguments.lanes == "cpu"):
                # The helper that gets memory is one stage, whatever the kernel does for it.
                symbol, kernel = ("gn-pages", False) if match[1] == "gn-pages" else (match[2], "kernel" in match[3])
                counts[("engine" if match[1].startswith("gn-") else "lanes", symbol, kernel)] += 1
        return counts, json.loads(result.read_text()), command


def listing(title, counts, cost_us, shown):
    total = sum(counts.values())
    lines = [f"  {title}: {cost_us:.2f} us per operation, {total} samples"]
    stages = collections.Counter()
    for (symbol, kernel), n in counts.items():
        stages[stage_of(symbol, kernel)] += n
    lines += [f"    {100 * n / total:5.1f} %  {cost_us * n / total:6.2f} us  {name}" for name, n in stages.most_common()]
    lines.append("    functions")
    for (symbol, kernel), n in counts.most_common(shown):
        lines.append(f"      {100 * n / total:5.1f} %  {cost_us * n / total:6.2f} us  {'[kernel] ' if kernel else ''}{short(symbol)}")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--lanes", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--ops", default="read,write")
    parser.add_argument("--bytes", type=int, default=4096)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--delay", type=float, default=2, help="seconds to wait before sampling, while the array is filled")
    parser.add_argument("--functions", type=int, default=14)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--out", type=pathlib.Path)
    own = sys.argv[1:]
    more = own[own.index("--") + 1:] if "--" in own else []
    arguments = parser.parse_args(own[:own.index("--")] if "--" in own else own)
    lines = []
    for operation in arguments.ops.split(","):
        counts, run, command = sample(arguments.program, operation, arguments, more)
        repeat = run["cases"][0]["repeats"][0]
        if not lines:
            known = [run["machine"]["cpu"], run["machine"].get("gpu"), f"{run['machine']['cores']} cores", run["machine"]["kernel"]]
            lines += ["machine   " + ", ".join(one for one in known if one),
                      f"commit    {arguments.commit}"]
        lines += ["", f"{operation} of {arguments.bytes} bytes: {repeat['operations'] / repeat['seconds']:,.0f} IOPS over {repeat['seconds']:.1f} s; "
                      f"load average {run['configuration']['load average before']} before, {run['configuration']['load average after']} after",
                  "  " + " ".join(["gnstor_bench", *command[1:]]).replace(command[command.index("--json") + 1], "FILE")]
        for side, key in (("engine", "engine_cpu_seconds"), ("lanes", "lane_cpu_seconds")):
            mine = collections.Counter({(symbol, kernel): n for (who, symbol, kernel), n in counts.items() if who == side})
            if mine:
                title = {"engine": "engine threads (NIC and SSDs)", "lanes": "lanes (polling while they wait included)"}[side]
                lines += listing(title, mine, repeat[key] / repeat["operations"] * 1e6, arguments.functions)
    text = "\n".join(lines) + "\n"
    if arguments.out:
        arguments.out.write_text(text)
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
