"""The guest: Debian's own kernel packages, and an initramfs of Debian's own programs (nvme-cli, fio, e2fsprogs, ...).

Packages come from a Debian mirror through apt, with a configuration, lists and status of their own: nothing is installed on
this machine, and the guest is the same on every distribution. apt checks Debian's signatures. They are kept, with their
SHA-256, in a folder (GN_PEER_CACHE, else ~/.cache/gnstor/peer, else build/peer-cache where there is no such home); once there, no
network is needed. GN_DEBIAN_MIRROR names a mirror; without it, the one that this machine installs from is asked first, then
deb.debian.org, through the proxies that this machine's apt uses, each several times.
"""
import contextlib
import fcntl
import functools
import hashlib
import json
import lzma
import os
import pathlib
import re
import shutil
import stat
import subprocess
import tempfile
import threading
import time

from common import HERE, ROOT, PeerError, say

KERNELS = ("6.1", "6.12")  # of Debian 12 and of its backports
SUITES = ("bookworm", "bookworm-backports")
MIRROR = "http://deb.debian.org/debian"
KEYRING = pathlib.Path("/usr/share/keyrings/debian-archive-keyring.gpg")
# Programs of the guest, by the package that brings them.
PROGRAMS = {"busybox-static": ["busybox"], "kmod": ["kmod"], "iproute2": ["ip", "rdma", "tc"], "nvme-cli": ["nvme"], "fio": ["fio"],
            "e2fsprogs": ["mke2fs", "e2fsck"], "xfsprogs": ["mkfs.xfs", "xfs_repair"], "util-linux": ["fstrim", "blkdiscard"]}
LINKS = {"modprobe": "kmod", "lsmod": "kmod", "rmmod": "kmod", "mkfs.ext4": "mke2fs", "fsck.ext4": "e2fsck"}
MODULES = ["virtio_pci", "virtio_net", "virtio_console", "configfs", "rdma_rxe", "rdma_ucm", "nvme_rdma", "nvmet_rdma", "null_blk",
           "ext4", "xfs", "crc32c_generic", "crc32_generic", "crc32c_intel", "crc32_pclmul",
           "sch_netem", "sch_ingress", "ifb", "cls_matchall", "act_mirred"]
APT_SECONDS = 600  # of one run of apt; its own timeouts are far below
FETCH_SECONDS = 600  # after these nothing is tried anew
BACK_OFF_SECONDS = (5, 20, 60)  # between attempts at all mirrors
ATTEMPTS = ["-o", "Acquire::Retries=3", "-o", "Acquire::http::Timeout=30"]


def cache_folder():
    """The folder, which is there and can be written to."""
    wanted = []
    if named := os.environ.get("GN_PEER_CACHE"):
        wanted.append(pathlib.Path(named).absolute())
    else:
        with contextlib.suppress(RuntimeError):  # neither HOME nor an entry in the list of users
            wanted.append(pathlib.Path.home() / ".cache/gnstor/peer")
        wanted.append(ROOT / "build/peer-cache")
    for folder in wanted:
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                return folder
    raise PeerError(f"the guest's packages cannot be kept in {' or '.join(map(str, wanted))}: name a folder with GN_PEER_CACHE")


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Image:
    """One bootable guest: kernel and initramfs, in the cache."""

    def __init__(self, kernel, release, vmlinuz, initramfs):
        self.kernel, self.release, self.vmlinuz, self.initramfs = kernel, release, vmlinuz, initramfs


@functools.cache
def image(kernel):
    """The image with this kernel ("6.1"), made if it is not there; PeerError where it cannot be had."""
    cache = cache_folder()
    with open(cache / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the holder's waits are bounded: apt's timeouts, and APT_SECONDS
        packages = Packages(cache)
        chosen = {name: packages.get(name, kernel) for name in ("guest", f"kernel-{kernel}")}
        key = hashlib.sha256(json.dumps(chosen, sort_keys=True).encode() + pathlib.Path(__file__).read_bytes()
                             + (HERE / "guest_init.sh").read_bytes()).hexdigest()[:16]
        folder = cache / f"image-{kernel}-{key}"
        if not folder.exists():
            for old in cache.glob(f"image-{kernel}-*"):
                shutil.rmtree(old)
            say(f"peer: making the guest with kernel {kernel}")
            with tempfile.TemporaryDirectory(dir=cache, prefix="part-") as part:
                build(pathlib.Path(part), chosen, kernel, cache / "debs")
                os.rename(pathlib.Path(part) / "image", folder)
        return Image(kernel, (folder / "release").read_text(), folder / "vmlinuz", folder / "initramfs")


def of_this_machine(*command):
    """What a command of the apt that this machine installs with prints; nothing where it fails."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        if done.returncode == 0:
            return done.stdout.splitlines()
    return []


@functools.cache
def mirrors():
    """Where to ask, in this order."""
    if named := os.environ.get("GN_DEBIAN_MIRROR"):
        return [named]
    rows = [line.split() for line in of_this_machine("apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)")]
    own = [row[0].rstrip("/") for row in rows if len(row) == 2 and row[1] == SUITES[0] and row[0].startswith("http")]
    return list(dict.fromkeys([*own, MIRROR]))


def ways_out():
    """The proxies and certificates of this machine's apt, as lines of apt.conf."""
    return "".join(line + "\n" for line in of_this_machine("apt-config", "dump") if re.fullmatch(r'Acquire::(https?::\S+|ForceIPv\d) "[^"]+";', line))


class Packages:
    """The Debian packages in the cache: debs/*.deb, and sets.json: {set: {file: SHA-256}}."""

    def __init__(self, cache):
        self.cache, self.debs, self.manifest = cache, cache / "debs", cache / "sets.json"
        self.debs.mkdir(exist_ok=True)
        self.no_more_at = time.monotonic() + FETCH_SECONDS
        self.sets = json.loads(self.manifest.read_text()) if self.manifest.exists() else {}
        self.updated_from = None

    def get(self, name, kernel):
        """{file: SHA-256} of one set, fetched if it is not there or not what it was."""
        held = self.sets.get(name)
        if held and name == "guest" and not all(any(file.startswith(f"{package}_") for file in held) for package in PROGRAMS):
            held = None  # of an earlier list
        if held and all((self.debs / f).exists() and sha256(self.debs / f) == digest for f, digest in held.items()):
            return held
        if held:
            say(f"peer: a package of '{name}' in {self.debs} is missing or damaged; fetching them again")
            for file in held:
                (self.debs / file).unlink(missing_ok=True)
        files = self.patiently(lambda: self.fetch_kernel(kernel) if name.startswith("kernel-") else self.fetch_programs())
        self.sets[name] = {file: sha256(self.debs / file) for file in files}
        written = self.manifest.with_suffix(".part")
        written.write_text(json.dumps(self.sets, indent=1))
        os.replace(written, self.manifest)
        return self.sets[name]

    def patiently(self, fetch):
        """What `fetch` returns, from the first mirror that has it; a mirror that is busy is asked again."""
        if not KEYRING.exists():
            raise PeerError(f"{KEYRING} is missing, so Debian's packages cannot be checked: install debian-archive-keyring")
        if not shutil.which("apt-get"):
            raise PeerError("apt-get is missing: the guest's packages are fetched with it (Debian or Ubuntu)")
        for wait in (*BACK_OFF_SECONDS, None):
            for mirror in mirrors():
                try:
                    self.update(mirror)
                    return fetch()
                except PeerError as error:
                    failure = error
                    self.updated_from = None
                    say(f"peer: {mirror}: {error}")
            if not wait or time.monotonic() > self.no_more_at:
                break
            say(f"peer: no mirror delivered the packages; trying again in {wait} s")
            threading.Event().wait(wait)
        raise PeerError(f"the guest's Debian packages could not be fetched from {' or '.join(mirrors())} in several attempts. This test needs the network once: check that these addresses can be reached (curl -I), name another mirror with GN_DEBIAN_MIRROR, or copy "
                        f"{self.cache} from a machine that has it (GN_PEER_CACHE names the folder). The last attempt: {failure}")

    def update(self, mirror):
        """The lists of a mirror, of whose packages the others then know."""
        if self.updated_from == mirror:
            return
        apt = self.cache / "apt"
        for folder in ("etc/apt.conf.d", "state/lists/partial", "cache/archives/partial"):
            (apt / folder).mkdir(parents=True, exist_ok=True)
        (apt / "state/status").write_text("")
        (apt / "etc/sources.list").write_text("".join(f"deb [arch=amd64 signed-by={KEYRING}] {mirror} {suite} main\n" for suite in SUITES))
        (self.cache / "apt.conf").write_text(
            f'Dir "{apt}"; Dir::State "state"; Dir::State::status "{apt}/state/status"; Dir::Cache "cache"; Dir::Etc "etc";\n'
            'Dir::Etc::sourceparts "/dev/null"; Dir::Etc::preferencesparts "/dev/null"; Acquire::Languages "none";\n'
            'APT::Architecture "amd64"; APT::Architectures { "amd64"; }; APT::Install-Recommends "false"; APT::Sandbox::User "root";\n'
            + ways_out())
        say(f"peer: reading the package lists of {mirror} ({', '.join(SUITES)})")
        self.apt("apt-get", "update", "--error-on=any", *ATTEMPTS)
        self.updated_from = mirror

    def apt(self, *command, folder=None):
        environment = {**os.environ, "APT_CONFIG": str(self.cache / "apt.conf"), "LC_ALL": "C"}
        try:
            done = subprocess.run(command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  timeout=APT_SECONDS)
        except subprocess.TimeoutExpired:
            raise PeerError(f"'{' '.join(command)}' did not end within {APT_SECONDS} s") from None
        if done.returncode != 0:
            last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-6:])
            raise PeerError(f"'{' '.join(command[:3])}' failed. Its last lines:\n{last}")
        return done.stdout

    def fetch_programs(self):
        say(f"peer: fetching {', '.join(PROGRAMS)} and what they need (about 70 MB, once)")
        archives = self.cache / "apt/cache/archives"
        self.apt("apt-get", "install", "--yes", "--download-only", *ATTEMPTS, *PROGRAMS)
        return self.take(archives)

    def fetch_kernel(self, kernel):
        about = self.apt("apt-cache", "show", "linux-image-amd64")
        versions = re.findall(r"^Version: (\S+)$.*?^Depends: (linux-image-\S+)", about, re.M | re.S)
        package = next((depends for version, depends in versions if version.startswith(kernel + ".")), None)
        if not package:
            had = ", ".join(version for version, _ in versions) or "none"
            raise PeerError(f"{', '.join(SUITES)} have no package of Linux {kernel} (they have: {had})")
        say(f"peer: fetching {package} (about 70 MB, once)")
        with tempfile.TemporaryDirectory(dir=self.cache, prefix="part-") as part:
            self.apt("apt-get", "download", *ATTEMPTS, package, folder=part)
            return self.take(pathlib.Path(part))

    def take(self, folder):
        files = sorted(folder.glob("*.deb"))
        for file in files:
            os.replace(file, self.debs / file.name)
        return [file.name for file in files]


def build(part, chosen, kernel, debs):
    """part/image: vmlinuz, initramfs and release, of the packages `chosen`."""
    programs, kernels = part / "programs", part / "kernels"
    for folder, name in ((programs, "guest"), (kernels, f"kernel-{kernel}")):
        folder.mkdir()
        for file in sorted(chosen[name]):
            tool("dpkg-deb", "-x", debs / file, folder)
    vmlinuz = next((kernels / "boot").glob("vmlinuz-*"))
    release = vmlinuz.name.removeprefix("vmlinuz-")
    root = part / "root"
    lay_out(root)
    copy_programs(programs, root)
    copy_modules(kernels, release, root)
    finished = part / "image"
    finished.mkdir()
    shutil.copy(vmlinuz, finished / "vmlinuz")
    (finished / "release").write_text(release)
    with open(finished / "initramfs", "wb") as out:
        write_cpio(root, out)


def tool(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise PeerError(f"{' '.join(map(str, command))} failed: {(done.stdout + done.stderr).strip()[-500:]}")
    return done.stdout


def lay_out(root):
    for folder in ("usr/bin", "usr/lib/modules", "usr/lib64", "proc", "sys", "dev", "etc", "tmp", "run", "root", "mnt"):
        (root / folder).mkdir(parents=True)
    for name, target in (("bin", "usr/bin"), ("sbin", "usr/bin"), ("usr/sbin", "bin"), ("lib", "usr/lib"), ("lib64", "usr/lib64")):
        (root / name).symlink_to(target)
    shutil.copy(HERE / "guest_init.sh", root / "init")
    (root / "init").chmod(0o755)
    # Its shell takes its own commands before programs of the same name, so those that differ (tc) are called by their path.
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n")


def copy_programs(source, root):
    """The programs, every shared library that they need, and busybox under each of its names that is free."""
    bins = {p.name: p for folder in ("bin", "sbin", "usr/bin", "usr/sbin") for p in sorted((source / folder).glob("*"))}
    libraries = {p.name: p for folder in ("lib", "usr/lib") for p in sorted((source / folder).rglob("*.so*"))}
    wanted = [name for names in PROGRAMS.values() for name in names]
    seen, queue = set(), []
    for name in wanted:
        if name not in bins:
            raise PeerError(f"none of the fetched guest packages contains a program '{name}'; fetched: {', '.join(PROGRAMS)}")
        shutil.copy(bins[name], root / "usr/bin" / name)
        queue.append(bins[name])
    while queue:
        for name in re.findall(r"\(NEEDED\).*\[(.+)\]", tool("readelf", "-d", queue.pop())):
            if name not in seen:
                seen.add(name)
                if name not in libraries:
                    raise PeerError(f"none of the fetched guest packages contains the library {name}")
                queue.append(libraries[name])
                shutil.copy(libraries[name], root / "usr/lib" / name)
    loader = "ld-linux-x86-64.so.2"
    shutil.copy(libraries[loader], root / "usr/lib64" / loader)
    for name, target in LINKS.items():
        (root / "usr/bin" / name).symlink_to(target)
    for name in tool(root / "usr/bin/busybox", "--list").split():
        if not (root / "usr/bin" / name).exists():
            (root / "usr/bin" / name).symlink_to("busybox")


def copy_modules(source, release, root):
    """The modules and what they depend on, as depmod sees it; where a kernel has one built in or not at all, it is left out."""
    modules = next(folder for folder in (source / "lib/modules", source / "usr/lib/modules") if folder.exists()) / release
    tool("depmod", "-b", modules.parents[2], release)
    depends = {}
    for line in (modules / "modules.dep").read_text().splitlines():
        file, needs = line.split(":")
        depends[pathlib.Path(file).name.split(".ko")[0].replace("-", "_")] = [file, *needs.split()]
    target = root / "usr/lib/modules" / release
    for file in sorted({file for name in MODULES for file in depends.get(name, [])}):
        out = target / re.sub(r"\.xz$", "", file)
        out.parent.mkdir(parents=True, exist_ok=True)
        data = (modules / file).read_bytes()
        out.write_bytes(lzma.decompress(data) if file.endswith(".xz") else data)
    for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
        with contextlib.suppress(FileNotFoundError):
            shutil.copy(modules / name, target / name)
    tool("depmod", "-b", root / "usr", release)


def write_cpio(root, out):
    """The tree as a "newc" archive owned by root, uncompressed: an emulated processor unpacks that fastest."""
    number = 0

    def entry(name, mode, data):
        nonlocal number
        number += 1
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
        out.write(head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4))

    for path in sorted(root.rglob("*")):
        mode = path.lstat().st_mode
        data = b""
        if stat.S_ISLNK(mode):
            data = os.readlink(path).encode()
        elif stat.S_ISREG(mode):
            data = path.read_bytes()
        entry(str(path.relative_to(root)), mode, data)
    entry("TRAILER!!!", 0, b"")
