"""One guest: a Linux kernel in QEMU (software emulation), its processes driven through a virtio port.

Everything that waits has a deadline. The guest's console is kept in a file; leaving the `with` block ends the machine, after a
failure with what its kernel said. `check_kernel_log` holds against it what a kernel says when something is wrong.
"""
import base64
import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time

import kernel_log
from common import GUEST_ADDRESS, PATIENCE, TAP, Deadline, PeerError, say

BOOT_SECONDS = 90
BOOTS = 3  # a guest that does not come up has met nothing of ours yet


class Result:
    """How a command of the guest ended."""

    def __init__(self, status, output, seconds):
        self.status, self.output, self.seconds = status, output, seconds

    @property
    def text(self):
        return self.output.decode(errors="replace").strip()


class Port:
    """The host's end of one virtio port; guest_init.sh has the other."""

    def __init__(self, path):
        self.path, self.socket, self.buffer, self.number = path, None, b"", 0

    def connect(self):
        """Whether qemu listens: its socket has a name (bind) before it takes connections (listen)."""
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.socket.connect(str(self.path))
        except (FileNotFoundError, ConnectionRefusedError):
            self.socket.close()
            return False
        return True

    def fill(self, deadline):
        deadline.wait_readable(self.socket)
        data = self.socket.recv(1 << 16)
        if not data:
            raise PeerError(f"{deadline.what}: the guest (virtual machine) has ended")
        self.buffer += data

    def line(self, deadline):
        while b"\n" not in self.buffer:
            self.fill(deadline)
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line.decode()

    def run(self, script, seconds):
        self.number += 1
        shown = " ".join(script.split())[:120]
        deadline = Deadline(seconds + 20, f"guest: {shown}")
        start = time.monotonic()
        self.socket.settimeout(deadline.seconds)
        self.socket.sendall(f"{self.number} {seconds * PATIENCE:.0f} {base64.b64encode(script.encode()).decode()}\n".encode())
        number, status, size = self.line(deadline).split()
        if int(number) != self.number:
            raise PeerError(f"guest: got an answer to request {number}, expected one to request {self.number}")
        while len(self.buffer) < int(size):
            self.fill(deadline)
        output, self.buffer = self.buffer[:int(size)], self.buffer[int(size):]
        return Result(int(status), output, time.monotonic() - start)


class Guest:
    """`with Guest(image, folder, mtu) as guest`: booted, its network device up at GUEST_ADDRESS, with an rxe device on it."""

    def __init__(self, image, folder, mtu=1500, memory_mib=1024):
        self.image, self.folder, self.mtu, self.memory_mib = image, folder, mtu, memory_mib
        self.capture = folder / "capture.pcap"
        self.console = folder / "console.txt"
        self.process = None
        self.commands = 0
        self.boot_seconds = 0.0
        self.went_back = 0
        self.sockets, self.ports = None, []

    def arguments(self):
        # One processor: an emulated one that is stopped anywhere for the other was seen to die of code that was being patched ("Oops: int3"),
        # and, on 6.1, to send a request before the one that precedes it, which rxe does not survive (scenarios/lossy.py). A second
        # queue comes by nr-write-queues (scenarios/host.py).
        words = ["qemu-system-x86_64", "-M", "q35", "-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", str(self.memory_mib),
                 "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", f"file:{self.console}",
                 "-kernel", str(self.image.vmlinuz), "-initrd", str(self.image.initramfs),
                 "-append", "console=ttyS0 panic=-1 oops=panic mitigations=off net.ifnames=0"
                 # An emulated processor that has to wait for a real one is not stuck.
                 " watchdog_thresh=60 rcupdate.rcu_cpu_stall_timeout=120",
                 "-netdev", f"tap,id=net,ifname={TAP},script=no,downscript=no,vnet_hdr=off",
                 "-device", "virtio-net-pci,netdev=net,mac=52:54:00:00:00:02,romfile=",
                 "-object", f"filter-dump,id=dump,netdev=net,file={self.capture},maxlen=65535",
                 "-device", "virtio-serial-pci"]
        for number, port in enumerate(self.ports, 1):
            words += ["-chardev", f"socket,id=port{number},path={port.path},server=on,wait=off",
                      "-device", f"virtserialport,chardev=port{number},nr={number}"]
        return words

    def __enter__(self):
        for left in reversed(range(BOOTS)):
            try:
                return self.boot()
            except PeerError as error:
                self.end()
                if not left:
                    raise
                say(f"  guest: {error}\n  guest: booting it again, at most {left} more times")
            except BaseException:
                self.end()
                raise

    def boot(self):
        start = time.monotonic()
        deadline = Deadline(BOOT_SECONDS, "booting the guest")
        # Paths of Unix sockets are short; the folder's need not be.
        self.sockets = tempfile.TemporaryDirectory(prefix="gnstor-")
        self.ports = [Port(os.path.join(self.sockets.name, str(number))) for number in (1, 2)]
        # A session of its own: an interrupt from the terminal reaches the harness alone, which then ends this in order.
        with open(self.folder / "qemu.txt", "wb") as log:
            self.process = subprocess.Popen(self.arguments(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        try:
            # All first: the guest's end of a port that nobody holds here blocks.
            for port in self.ports:
                self.connect(port, deadline)
            hello = [port.line(deadline) for port in self.ports][0]
        except PeerError as error:
            raise PeerError(f"{error}; the last lines of the guest's console:\n{self.console_end()}") from None
        if hello != f"ready {self.image.release}":
            raise PeerError(f"the guest's first line is '{hello}', expected 'ready {self.image.release}'")
        self.boot_seconds = time.monotonic() - start
        # What the kernel said while it booted is not about us.
        self.run("dmesg -n 4; dmesg -c >/run/boot-log; echo 180 >/proc/sys/kernel/hung_task_timeout_secs")
        self.run(f"ip address add {GUEST_ADDRESS}/24 dev eth0 && ip link set eth0 mtu {self.mtu} up"
                 " && modprobe -a crc32_generic rdma_rxe && rdma link add rxe0 type rxe netdev eth0", 60)
        say(f"  guest: Linux {self.image.release} up after {self.boot_seconds:.1f} s, MTU {self.mtu}")
        return self

    def connect(self, port, deadline):
        """QEMU listens before it runs the guest; it may also end at once, with a reason."""
        while not port.connect():
            deadline.left()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=0.05)
                raise PeerError(f"qemu ended with exit status {self.process.returncode}: {(self.folder / 'qemu.txt').read_text().strip()[-500:]}")

    def run(self, script, seconds=30, status=0):
        """Runs a shell script in the guest; PeerError unless it exits with `status` (None: whatever it exits with)."""
        self.commands += 1
        done = self.ports[0].run(script, seconds)
        if status is not None and done.status != status:
            raise PeerError(f"guest: exit status {done.status}, expected {status}, after {done.seconds:.1f} s from: {' '.join(script.split())[:400]}\n"
                            f"{done.text[-2000:]}")
        return done

    def text(self, script, seconds=30, status=0):
        return self.run(script, seconds, status).text

    def wait_for(self, condition, seconds, what):
        """Until a shell condition holds in the guest, looked at ten times a second there."""
        done = self.run(f"until {{ {condition} ; }} >/dev/null 2>&1; do sleep 0.1; done", seconds, None)
        if done.status != 0:
            raise PeerError(f"guest: waiting for '{what}': not reached within {seconds * PATIENCE:.0f} s")

    def check_kernel_log(self, expected=(), may_go_back=False):
        """What the kernel has said since it was asked last. PeerError where something is wrong in it that is none of `expected`: patterns
        of whole lines. `may_go_back`: the load is heavy enough for its own rxe to lose the connection, which it then makes anew; `went_back` counts
        the times."""
        text = self.text("dmesg -r -c | tee -a /run/earlier-log")
        if may_go_back and (lost := kernel_log.went_back(text)):
            self.went_back += lost
            expected = [*expected, *kernel_log.CONNECTION_LOST]
        said, wrong = kernel_log.judge(text, expected)
        if wrong:
            raise PeerError("the guest's kernel warns: " + " | ".join(wrong[:10]) + (f" | and {len(wrong) - 10} lines more" if len(wrong) > 10 else ""))
        return said

    def console_end(self, lines=25):
        with contextlib.suppress(OSError):
            return "\n".join(self.console.read_text(errors="replace").splitlines()[-lines:])
        return "(none)"

    def explain(self):
        """After a failure: what hangs, and what the kernel said, from the second port."""
        try:
            text = self.ports[1].run("cat /run/earlier-log 2>/dev/null | tail -n 15; dmesg | tail -n 40; for p in /proc/[0-9]*; do grep -q '^State:.D' $p/status 2>/dev/null"
                                     " && { cat $p/comm $p/stack; }; done", 20).text
            say("  guest, after the failure:\n" + "\n".join("    " + line for line in text.splitlines()))
        except (PeerError, OSError) as error:
            say(f"  guest, after the failure: {error}; the last lines of the guest's console:\n{self.console_end()}")

    def end(self):
        for port in self.ports:
            if port.socket:
                port.socket.close()
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(timeout=10)
        if self.sockets:
            self.sockets.cleanup()

    def __exit__(self, kind, error, trace):
        try:
            if kind is not None and issubclass(kind, (PeerError, AssertionError)):
                self.explain()
        finally:
            self.end()
