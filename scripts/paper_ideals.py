"""What bounds a case of the paper's figures from outside: SSDs, network and PCIe for throughput, an idle array for latency.

Of SSDs and network: what the run's profile allows of the case, as its raw result states it (the paper's hardware where it had no model). Of PCIe: what
plain copies by lanes of the same GPU reached, from a raw result beside the figure's; the paper's where such a copy was not measured. Of latency: what the profile
configures for an idle array, from a raw result of `./run bench model`. An ideal that nobody stated is left out, never guessed.
"""
import json
import pathlib
import statistics
from typing import NamedTuple

RUNS = pathlib.Path(__file__).resolve().parents[1] / "docs" / "runs"
# The run whose plain copies are the link's ceiling: working sets in pinned memory, no array.
PCIE_RUN = "path-gpu-h200-3.json"
# The run that states what profiles configure for an idle array.
MODEL_RUN = "model-gpu-h200.json"
# The paper's limits, of one SSD by (operation, bytes) and of the links, in the unit of the axes: 10^9 bytes a second. The paper's own GB/s are
# 1024 MB/s (its network: 21.6 GB/s = 22,118 MB/s) and its MB taken as 2^20 bytes, as share/profiles/gnstor-paper.json has them.
PAPER_MB, PAPER_GB = 2**20 / 1e9, 2**30 / 1e9
PAPER_SSD = {("read", 4096): 3250 * PAPER_MB, ("write", 4096): 2980 * PAPER_MB, ("read", 65536): 6988 * PAPER_MB, ("write", 65536): 4950 * PAPER_MB}
PAPER_NETWORK, PAPER_PCIE = 21.6 * PAPER_GB, 25.1 * PAPER_GB
PAPER = " (paper)"


class Ideal(NamedTuple):
    what: str    # SSDs, network, PCIe, or an idle array
    value: float
    whose: str   # of what machine; empty: of the run's profile

    def label(self):
        return f"{self.what} {self.value:.1f}{self.whose}"


def read(path):
    return json.loads(path.read_text()) if path.is_file() else {"cases": []}


def profile_limits(run, case):
    """GB/s of SSDs and network. Writes go to every replica: the paper's limits are divided by them, a profile's have been already."""
    parameters, first = case["parameters"], case["repeats"][0]
    count = parameters["bytes"]
    if "limit_drives_per_second" in first:
        return first["limit_drives_per_second"] * count / 1e9, first.get("limit_network_per_second", 0) * count / 1e9, ""
    copies = run["configuration"]["replicas"] if parameters["operation"] == "write" else 1
    return PAPER_SSD[(parameters["operation"], count)] * parameters["SSDs"] / copies, PAPER_NETWORK / copies, PAPER


def pcie(run, case, runs=RUNS):
    """GB/s that cross PCIe in plain copies of this size. Of writes every copy that was stored counts: the array's lanes store one, for all replicas."""
    gpu, parameters = run["machine"].get("gpu"), case["parameters"]
    measured = read(runs / PCIE_RUN)
    if gpu and gpu == measured.get("machine", {}).get("gpu"):
        copies = measured["configuration"]["replicas"] if parameters["operation"] == "write" else 1
        for plain in measured["cases"]:
            if plain["parameters"] == {"bytes": parameters["bytes"], "operation": parameters["operation"], "path": "plain copy"}:
                return copies * statistics.median(r["bytes"] / r["seconds"] for r in plain["repeats"]) / 1e9, f" ({gpu.removeprefix('NVIDIA ')})"
    return PAPER_PCIE, PAPER


def throughput(run, case, runs=RUNS):
    drives, network, whose = profile_limits(run, case)
    link, of_link = pcie(run, case, runs)
    return [ideal for ideal in (Ideal("SSDs", drives, whose), Ideal("network", network, whose), Ideal("PCIe", link, of_link)) if ideal.value > 0]


def latency(run, case, runs=RUNS):
    """us of SSD and network as configured, nothing waiting and no software: empty where MODEL_RUN has no case of the same profile and replicas."""
    wanted = (run["configuration"]["profile"], case["parameters"]["operation"], case["parameters"]["bytes"])
    model = read(runs / MODEL_RUN)
    if model.get("configuration", {}).get("replicas") != run["configuration"]["replicas"]:
        return []
    for known in model["cases"]:
        p, first = known["parameters"], known["repeats"][0]
        if (p["profile"], p["operation"], p["bytes"]) == wanted and "configured_latency_ns" in first:
            return [Ideal("SSD + network", first["configured_latency_ns"] / 1e3, "")]
    return []


def explained(run, with_throughput, with_latency, runs=RUNS):
    """What the dashed lines are, for the caption: of the values that throughput() and latency() give."""
    words = []
    if with_throughput:
        words.append("Dashed, of throughput: what the profile's SSDs and network allow, and PCIe.")
        ideals = {(ideal.what, ideal.whose) for case in run["cases"] for ideal in throughput(run, case, runs)}
        whose = {whose for what, whose in ideals if what == "PCIe"}
        if whose - {PAPER}:
            which = "PCIe" if PAPER not in whose else "PCIe, where not marked (paper),"
            words.append(f"{which} is what plain copies by lanes of {run['machine']['gpu']} reached between pinned host memory and theirs (docs/runs/{PCIE_RUN}).")
        if any(whose == PAPER for _, whose in ideals):
            words.append("What is marked (paper) is the paper's hardware.")
        words.append("An arrow: above the scale.")
    if with_latency and any(latency(run, case, runs) for case in run["cases"]):
        words.append("Dashed, of latency: what the profile configures for an idle array, drive and network, without any software.")
    return " ".join(words)
