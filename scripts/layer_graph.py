#!/usr/bin/env python3
"""layer_graph: which layers there are, in what order, and who may use whom; and the same of the rooms (folders) within a layer.

Arrows between layers are the DEPENDS of src/*/CMakeLists.txt; arrows between rooms are the #includes themselves, and must have no circle. The rooms
of a layer's public headers (include/gnstor/LAYER) have arrows among themselves; that the layer's sources use them goes without saying.
Read by the layer rule (tests/house/layers_test.py) and by the choice of stages that a change can reach (scripts/reach.py). Run by itself
(./run lint --layers) it draws both, from the bottom up; a layer's sentence is the first one of its CMakeLists.txt, "# LAYER: ...", a room's line
that of the comment there.
"""
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]

# From the bottom up; a layer may depend only on layers before it.
ORDER = ["base", "simt", "nvme", "placement", "rdma", "deengine", "ssd", "nvmf", "gnor", "client", "gateway", "daemon", "embedded", "cli"]

# A header that counts as another layer's than its folder says: the vendor commands' payloads are built of placement's structures,
# so a file that includes them depends on placement; and headers that lie directly in include/gnstor.
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


def room_of(path):
    """The folder of a file. A .inl in a folder detail/ has the bodies of the header that includes it, one folder up, and is of that one's room."""
    path = pathlib.PurePosixPath(path)
    folder = path.parent
    return str(folder.parent if path.suffix == ".inl" and folder.name == "detail" else folder)


def rooms_of_text(opening, files):
    """{room: {room it includes: how often}} of sources: pairs (path below their common folder, text). `opening`: how an #include of that folder
    begins, such as '"rdma/' or '<gnstor/rdma/'. The folder itself is room ".".
    """
    rooms = {}
    for path, text in files:
        room = room_of(path)
        used = rooms.setdefault(room, {})
        for included in re.findall(rf'^#include {re.escape(opening)}([^">]+)[">]', text, re.M):
            other = room_of(included)
            if other != room:
                used[other] = used.get(other, 0) + 1
    return rooms


def rooms_of_folder(folder, opening):
    paths = sorted(p for p in folder.rglob("*") if p.suffix in (".hpp", ".cpp", ".inl", ".cu"))
    return rooms_of_text(opening, [(p.relative_to(folder).as_posix(), p.read_text()) for p in paths])


def rooms_of_layer(layer):
    """Of its sources, and of its public headers; a room's name begins with include/ there."""
    headers = rooms_of_folder(ROOT / "include" / "gnstor" / layer, f"<gnstor/{layer}/")
    named = {room: "include" if room == "." else f"include/{room}" for room in headers}
    public = {named[room]: {named[u]: n for u, n in used.items()} for room, used in headers.items()}
    return rooms_of_folder(ROOT / "src" / layer, f'"{layer}/') | (public if len(public) > 1 else {})


def from_the_bottom_up(arrows):
    """The nodes in an order in which each stands behind all that it uses, and those that lie on a circle (none, as it should be)."""
    order, left = [], dict(arrows)
    while True:
        ready = sorted(node for node, used in left.items() if not any(u in left for u in used if u != node))
        if not ready:
            return order, sorted(left)
        order += ready
        for node in ready:
            del left[node]


def said_of_rooms(layer):
    text = (ROOT / "src" / layer / "CMakeLists.txt").read_text()
    return {room.rstrip("/"): said for room, said in re.findall(r"^#   (\S+/)\s+(.*)$", text, re.M)}


def said_of_layer(layer):
    """The sentence with which the CMakeLists.txt of a layer begins, "# LAYER: ...", or None."""
    said = re.match(rf"# {layer}: (.+?)\.(\s|$)", (ROOT / "src" / layer / "CMakeLists.txt").read_text())
    return said and said.group(1)


def path_of_room(layer, room):
    below = room.removeprefix("include").lstrip("/") if room.split("/")[0] == "include" else room.removeprefix(".")
    root = f"include/gnstor/{layer}/" if room.split("/")[0] == "include" else f"src/{layer}/"
    return root + (f"{below}/" if below else "")


def draw():
    arrows = arrows_of_repository()
    for layer in ORDER:
        lowers = [lower for lower in ORDER if lower in arrows.get(layer, ())]
        print(f"{layer:<10} {said_of_layer(layer) or ''}".rstrip() + (f"\n{'':<11}-> {' '.join(lowers)}" if lowers else ""))
        rooms = rooms_of_layer(layer)
        order, circle = from_the_bottom_up(rooms)
        if len(rooms) < 2 and not circle:
            continue
        said = said_of_rooms(layer)
        width = max((len(path_of_room(layer, room)) for room in order), default=0)
        for room in order:
            uses = " ".join(sorted(path_of_room(layer, used) for used in rooms[room]))
            print(f"    {path_of_room(layer, room):<{width}} {said.get(room, '')}".rstrip() + (f"\n{'':<{width + 5}}-> {uses}" if uses else ""))
        if circle:
            print(f"    in a cycle of #includes: {' '.join(path_of_room(layer, room) for room in circle)}")
    print('How a command passes through them: docs/design.md, "A read, from end to end"')


if __name__ == "__main__":
    try:
        draw()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader wanted no more, as head does; what is buffered goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0)
