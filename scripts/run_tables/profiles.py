"""What bench/profile.py printed (docs/runs/profile-*.txt): the shares of each part, one column for each measurement."""
import re

from .results import BadResult
from .table import Table, markdown

LOAD = re.compile(r"^(?P<what>(?:read|write) of \d+ bytes): ")
SIDE = re.compile(r"^  (?P<side>[^:]+): (?P<cost>[\d.]+) us an operation")
PART = re.compile(r"^    +(?P<share>[\d.]+) %\s+[\d.]+ us  (?P<part>.+)$")
LEAST = 1.0  # percent; parts that have less everywhere are left out


def columns_of(text):
    """(load, side) -> (µs an operation, {part: percent})."""
    columns, load, parts = {}, None, None
    for line in text.split("\n"):
        if match := LOAD.match(line):
            load, parts = match["what"], None
        elif match := SIDE.match(line):
            parts = {}
            columns[load, match["side"]] = (match["cost"], parts)
        elif line.strip() == "functions":
            parts = None
        elif parts is not None and (match := PART.match(line)):
            parts[match["part"]] = float(match["share"])
    return columns


def profile_table(texts):
    """`texts`: contents by name. Of engine threads alone: they are what binds."""
    columns = {}
    for name, text in texts.items():
        for (load, side), found in columns_of(text).items():
            if side.startswith("engine threads"):
                columns[load] = found
    if not columns:
        raise BadResult(f"profile: no engine threads in {' '.join(texts)}")
    parts = sorted({part for _, shares in columns.values() for part in shares}, key=lambda part: -sum(c[1].get(part, 0) for c in columns.values()))
    rows = [["µs of engine threads an operation"] + [cost for cost, _ in columns.values()]]
    rows += [[f"{part}, %"] + [f"{shares.get(part, 0):.0f}" for _, shares in columns.values()] for part in parts
             if any(shares.get(part, 0) >= LEAST for _, shares in columns.values())]
    links = ", ".join(f"[{name.removesuffix('.txt')}](runs/{name})" for name in texts)
    return markdown([Table(["engine threads"] + list(columns), rows), f"Source: {links}."])
