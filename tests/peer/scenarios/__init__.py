"""The scenarios by name, in the order in which they run."""
from .gateway import Gateway
from .initiator import Initiator
from .loop import Loop
from .lossy import Lossy
from .target import Target

SCENARIOS = {"loop": Loop, "initiator": Initiator, "gateway": Gateway, "target": Target, "lossy": Lossy}
