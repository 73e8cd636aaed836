"""The scenarios by name, in the order in which they run."""
from .auth_host import AuthHost
from .auth_target import AuthTarget
from .gateway import Gateway
from .initiator import Initiator, InitiatorAt3000
from .loop import Loop
from .lossy import Lossy
from .nodes import Nodes
from .target import Target, TargetAt9000
from .thin import Thin

SCENARIOS = {"loop": Loop, "initiator": Initiator, "initiator-3000": InitiatorAt3000, "gateway": Gateway, "thin": Thin, "nodes": Nodes, "target": Target,
             "target-9000": TargetAt9000, "lossy": Lossy, "auth-target": AuthTarget, "auth-host": AuthHost}
for name, scenario in SCENARIOS.items():
    scenario.name = name
