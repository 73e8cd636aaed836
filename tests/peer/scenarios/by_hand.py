"""The commands of docs/operations.md, "Processes and hosts", from "By hand, on several hosts" up to a mounted file system, as they stand there."""
import re
import shlex

from common import ROOT, PeerError

PAGE = ROOT / "docs/operations.md"
BEGIN = "By hand, on several hosts"
PROMPT = re.compile(r"(\w+)([$#]) +(.*?)(?: +# .*)?$")
# What is another here: folders, and sizes that a small machine has.
OTHERS = {"/srv/gnstor": "gnstor", "/var/lib/gnstor": "gnstor", "--ssds 8 --capacity 100GiB": "--ssds 2 --capacity 256MiB", "disk 20GiB": "disk 256MiB"}
GUEST = "host"
HOSTS = {"storage1": 1, "storage2": 1, "manager": 1, "client": 2, "gateway": 3, GUEST: 3}
ADDRESS = re.compile(r"--listen (\d+\.\d+\.\d+\.\d+)")


def commands():
    """{host: [command]}; PeerError where the page no longer says what this was written for."""
    text = PAGE.read_text()
    if BEGIN not in text:
        raise PeerError(f"{PAGE} has no section '{BEGIN}'")
    found = {}
    for block in re.findall(r"```sh\n(.*?)```", text[text.index(BEGIN):], re.S)[:2]:
        for line in block.splitlines():
            if not (prompted := PROMPT.match(line)):
                raise PeerError(f"{PAGE}: this line does not begin with a host's prompt: {line}")
            name, prompt, command = prompted.groups()
            if prompt == "$" or name == GUEST:  # root's elsewhere are for programs that are not root's
                found.setdefault(name, []).append(command)
    if {name: len(lines) for name, lines in found.items()} != HOSTS:
        raise PeerError(f"{PAGE} has a different number of commands per host than this test expects ({HOSTS}): {found}")
    everything = "\n".join(command for lines in found.values() for command in lines)
    for theirs in OTHERS:
        if theirs not in everything:
            raise PeerError(f"{PAGE} no longer contains '{theirs}', which this test replaces by another command")
    return {name: [other(command) for command in lines] for name, lines in found.items()}


def other(command):
    for theirs, ours in OTHERS.items():
        command = command.replace(theirs, ours)
    return command


def words(command):
    return shlex.split(command)


def address(command):
    """The one after --listen."""
    return ADDRESS.search(command)[1]
