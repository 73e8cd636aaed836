"""The scenarios by name, in the order in which they run."""
from .loop import Loop

SCENARIOS = {"loop": Loop}
