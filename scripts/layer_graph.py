"""layer_graph: which layers there are, in what order, and who may use whom.

The arrows are the DEPENDS of src/*/CMakeLists.txt. Read by the layer rule (tests/house/layers_test.py) and by the choice of stages that a
change can reach (scripts/reach.py).
"""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[1]

# From the bottom up; a layer may depend only on layers before it.
ORDER = ["base", "simt", "nvme", "placement", "rdma", "deengine", "ssd", "nvmf", "gnor", "client", "gateway", "daemon", "embedded", "cli"]

# A header that counts as another layer's than its folder says: the vendor commands' payloads are built of placement's structures,
# so whoever includes them stands on placement; and headers that lie directly in include/gnstor.
COUNTS_AS = {"gnstor/nvme/vendor.hpp": "placement", "gnstor/embedded_array.hpp": "embedded", "gnstor/remote_array.hpp": "daemon"}


def declared(text):
    """The layer and its DEPENDS in one src/<layer>/CMakeLists.txt, or None."""
    call = re.search(r"gn_layer\(\s*(\w+)([^)]*)\)", text)
    if not call:
        return None
    words, lists = call.group(2).split(), {}
    current = None
    for word in words:
        if word in ("SOURCES", "DEPENDS", "LIBRARIES"):
            current = lists.setdefault(word, [])
        elif current is not None:
            current.append(word)
    return call.group(1), set(lists.get("DEPENDS", []))


def closure(arrows, layer):
    seen, todo = set(), [layer]
    while todo:
        for lower in arrows.get(todo.pop(), ()):
            if lower not in seen:
                seen.add(lower)
                todo.append(lower)
    return seen


def layer_of_file(path):
    parts = path.relative_to(ROOT).parts
    if parts[0] == "src":
        return parts[1]
    if "/".join(parts[1:]) in COUNTS_AS:
        return COUNTS_AS["/".join(parts[1:])]
    return parts[2] if parts[:2] == ("include", "gnstor") and len(parts) > 3 else None


def arrows_of_repository():
    found = (declared(p.read_text()) for p in sorted((ROOT / "src").glob("*/CMakeLists.txt")))
    arrows = dict(f for f in found if f)
    arrows.setdefault("cli", {"embedded", "gateway"})  # programs, not a library: nothing is above them
    return arrows
