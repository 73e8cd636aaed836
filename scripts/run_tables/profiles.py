"""What bench/profile.py printed (docs/runs/profile-*.txt): the shares of each part, one column for each measurement."""
import re

from .results import BadResult
from .table import Table

LOAD = re.compile(r"^(?P<what>(?:read|write) of \d+ bytes): ")
SIDE = re.compile(r"^  (?P<side>[^:]+): (?P<cost>[\d.]+) us an operation")
PART = re.compile(r"^    +(?P<share>[\d.]+) %\s+[\d.]+ us  (?P<part>.+)$")
LEAST = 5.0  # percent; parts that have less everywhere are the rest


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
    columns, files = {}, {}
    for name, text in texts.items():
        for (load, side), found in columns_of(text).items():
            if side.startswith("engine threads"):
                columns[load], files[load] = found, name
    if not columns:
        raise BadResult(f"profile: no engine threads in {' '.join(texts)}")
    columns = dict(sorted(columns.items(), key=lambda column: (column[0].split()[0], int(column[0].split()[2]))))
    parts = sorted({part for _, shares in columns.values() for part in shares}, key=lambda part: -sum(c[1].get(part, 0) for c in columns.values()))
    rows = [["µs of engine threads an operation"] + [cost for cost, _ in columns.values()]]
    rows += [[f"{part}, %"] + [f"{shares.get(part, 0):.0f}" for _, shares in columns.values()] for part in parts
             if any(shares.get(part, 0) >= LEAST for _, shares in columns.values())]
    shown = {row[0].removesuffix(", %") for row in rows}
    rows.append(["the rest, %"] + [f"{sum(share for part, share in shares.items() if part not in shown):.0f}" for _, shares in columns.values()])
    # One file may hold several loads, or each load have a file.
    links = ", ".join(f"[{name.removesuffix('.txt')}](runs/{name})" for name in texts) if len(texts) == 1 else "engine threads"
    heads = [f"[{load}](runs/{files[load]})" for load in columns] if len(texts) > 1 else list(columns)
    return Table([links] + heads, rows).markdown()
