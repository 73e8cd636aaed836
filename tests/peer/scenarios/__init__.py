"""The scenarios by name, in the order in which they run."""
from .loop import Loop
from .target import Target

SCENARIOS = {"loop": Loop, "target": Target}
