"""What every scenario has: a guest, a folder, our programs, counters."""
from common import say


class Scenario:
    mtu = 1500

    def __init__(self, image, folder, programs):
        self.image, self.folder, self.programs = image, folder, programs
        self.counts = {}

    def count(self, name, by=1):
        self.counts[name] = self.counts.get(name, 0) + by

    def step(self, text, seconds):
        say(f"  {seconds:7.1f} s  {text}")

    def finish(self, guest):
        """Prints the counters; returns them in words."""
        self.count("guest_commands", guest.commands)
        name = type(self).__name__.lower()
        for counter, value in self.counts.items():
            say(f"GN_COUNT peer_{name}_{counter}={value}")
        return ", ".join(f"{value:,} {counter.replace('_', ' ')}" for counter, value in self.counts.items())
