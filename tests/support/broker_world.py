"""A broker in a simulation and a client that asks it: requests take no real time at all."""

from collections.abc import Awaitable, Callable, Mapping

from ottla.config.broker import BrokerConfig
from ottla.runtime.simulated import Simulation
from ottla.server.broker import Broker
from ottla.server.single_node import format_if_needed, single_node_properties
from support.sim_client import SimClient

NODE = "broker"
PORT = 9092
SECONDS_MAX = 600

Scenario = Callable[[Broker, SimClient], Awaitable[None]]


def with_broker(scenario: Scenario, config: Mapping[str, str] | None = None) -> None:
    """Start a broker, let the scenario talk to it, and stop it in order."""
    with Simulation(1) as simulation:
        runtime = simulation.runtime(NODE)
        broker_config = BrokerConfig.from_properties(single_node_properties("/data", PORT, config))
        format_if_needed(runtime, broker_config)
        broker = Broker(runtime, broker_config)

        async def live() -> None:
            await broker.start()
            client = SimClient(simulation.runtime("client"), NODE, PORT)
            await scenario(broker, client)
            client.disconnect()
            await broker.stop()

        simulation.run(live(), seconds_max=SECONDS_MAX)
