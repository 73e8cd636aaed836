"""A raw result, held against its schema, and the words that name it: of its machine, of its cases."""
import json
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUNS = ROOT / "docs" / "runs"


class BadResult(Exception):
    pass


def load(path):
    try:
        run = json.loads(path.read_text())
    except ValueError as wrong:
        raise BadResult(f"{path.name}: not JSON: {wrong}")
    if run.get("schema") != 1:
        raise BadResult(f"{path.name}: schema {run.get('schema')!r}; this renderer knows schema 1")
    for key in ("benchmark", "command", "commit", "machine", "cases"):
        if key not in run:
            raise BadResult(f"{path.name}: no '{key}'")
    for case in run["cases"]:
        if not case.get("repeats"):
            raise BadResult(f"{path.name}: this case has no repeats: {case.get('parameters')}")
        for repeat in case["repeats"]:
            if repeat.get("seconds", 0) <= 0 or "operations" not in repeat:
                raise BadResult(f"{path.name}: a repeat needs seconds above 0 and operations")
    return run


def load_all(folder=RUNS):
    return {path.name: load(path) for path in sorted(folder.glob("*.json"))}


def command_of(run):
    return run["command"] if isinstance(run["command"], str) else " ".join(run["command"])


def name_of(parameters):
    if "path" in parameters and "pattern" in parameters:  # of `load` and `paper`: who initiates comes first
        parameters = {"path": parameters["path"], **parameters}
    return ", ".join(f"{v}" if isinstance(v, str) else f"{k} {v}" for k, v in parameters.items()) or "—"


def varying(cases):
    """The names of the parameters in which the cases differ."""
    keys = list(dict.fromkeys(key for case in cases for key in case.get("parameters", {})))
    return [key for key in keys if len({str(case.get("parameters", {}).get(key)) for case in cases}) > 1]


def machine_line(machine):
    known = [str(machine[k]) for k in ("cpu", "gpu") if machine.get(k)]
    if machine.get("cores"):
        known.append(f"{machine['cores']} cores")
    known += [str(machine[k]) for k in ("memory", "kernel", "compiler") if machine.get(k)]
    return ", ".join(known)
