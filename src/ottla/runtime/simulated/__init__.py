"""A whole cluster in one thread, from one seed. `simulation.Simulation` is the way in."""

from ottla.runtime.simulated.incarnation import NodeCrashed, NodeDown, PowerCut
from ottla.runtime.simulated.loop import (
    SimulationDeadlock,
    SimulationFence,
    SimulationOverdue,
    SimulationStalled,
)
from ottla.runtime.simulated.simulation import Simulation

__all__ = [
    "NodeCrashed",
    "NodeDown",
    "PowerCut",
    "Simulation",
    "SimulationDeadlock",
    "SimulationFence",
    "SimulationOverdue",
    "SimulationStalled",
]
