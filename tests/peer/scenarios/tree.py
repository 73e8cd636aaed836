"""A file tree on a file system of the guest's, and what it should still be later."""
from common import PeerError

SMALL_FILES = 200


class Tree:
    """Files below /mnt/tree: those of the guest's own that `copied` names, and small ones of random bytes."""

    def __init__(self, guest, disk, copied):
        self.guest, self.disk, self.copied = guest, disk, copied
        self.sums = "/run/tree"
        self.files = self.bytes = 0

    def mount(self):
        self.guest.run(f"modprobe ext4; mount -t ext4 {self.disk} /mnt", 60)

    def unmount(self):
        self.guest.run("umount /mnt", 120)

    def check(self):
        """e2fsck, of a file system that is not mounted."""
        self.guest.run(f"e2fsck -f -n {self.disk}", 120)

    def write(self):
        """Where it is mounted."""
        self.guest.run(f"""set -e
            mkdir /mnt/tree
            cp -a {self.copied} /mnt/tree
            for i in $(seq {SMALL_FILES}); do
                mkdir -p /mnt/tree/$((i % 7))/$((i % 11))
                head -c $((i * i * 13 % 70000)) /dev/urandom >/mnt/tree/$((i % 7))/$((i % 11))/$i
            done
            cd /mnt
            find . -type f -exec sha256sum {{}} + >{self.sums}
            sync""", 300)
        self.files = int(self.guest.text(f"wc -l <{self.sums}"))
        self.bytes = int(self.guest.text("du -s /mnt/tree | cut -f1")) << 10
        if self.files < SMALL_FILES:
            raise PeerError(f"the file tree has only {self.files} files")

    def compare(self, when):
        """Every file as it is on the medium."""
        self.guest.run(f"echo 3 >/proc/sys/vm/drop_caches; cd /mnt && sha256sum -c {self.sums} >/run/compared", 300, None)
        good = int(self.guest.text("grep -c ': OK$' /run/compared", status=None) or 0)
        if good != self.files:
            others = self.guest.text("grep -v ': OK$' /run/compared | head -n 20", status=None)
            raise PeerError(f"only {good} of {self.files} files have the contents that were written, {when}: {others}")
        return good
