"""kcat (librdkafka on the command line) as a client of the suite.

kcat administers nothing: its topic comes into being because it asks for it (auto-creation, with
the broker's num.partitions), and it writes records with the time of writing.
"""

import json
import subprocess
from typing import Any

from compat.drivers import program
from compat.drivers.program import NotOffered, Step

CALL_S_MAX = 30


class Kcat:
    def __init__(self, bootstrap: str, topic: str) -> None:
        version = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=True).stdout
        self.name = f"kcat {version.split('Version ')[1].split()[0]}"
        self._bootstrap, self._topic = bootstrap, topic

    def close(self) -> None:
        pass

    def _kcat(self, *arguments: str, stdin: str = "") -> str:
        done = subprocess.run(
            ["kcat", "-b", self._bootstrap, "-m", "10", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=CALL_S_MAX,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"kcat {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def _topic_metadata(self, *names: str) -> dict[str, Any]:
        wanted = [argument for name in names for argument in ("-t", name)]
        listed = json.loads(self._kcat("-L", "-J", *wanted))["topics"]
        return {entry["topic"]: entry for entry in listed}

    def create_topic(self, step: Step) -> bool:
        def created() -> bool:
            found = self._topic_metadata(self._topic)[self._topic]
            return bool(len(found["partitions"]) == step["partitions"])

        return program.until(created)

    def describe_topic(self, _step: Step) -> int:
        found = self._topic_metadata(self._topic)[self._topic]
        return len([part for part in found["partitions"] if part["leader"] >= 0])

    def produce(self, step: Step) -> int:
        records = step["records"]
        if any(record["key"] is None or record["value"] is None for record in records):
            raise NotOffered("kcat cannot tell null from empty in one run")
        headers = [f"{name}={value}" for name, value in records[0]["headers"]]
        self._kcat(
            *("-P", "-t", self._topic, "-p", str(records[0]["partition"])),
            *("-z", step["codec"], "-X", f"acks={step['acks']}", "-K", "\t"),
            *("-X", f"enable.idempotence={str(step['idempotent']).lower()}"),
            *(argument for header in headers for argument in ("-H", header)),
            stdin="".join(f"{record['key']}\t{record['value']}\n" for record in records),
        )
        return len(records)

    def _record(self, line: str) -> dict[str, Any]:
        message = json.loads(line)
        flat = message.get("headers", [])
        return {
            "partition": message["partition"],
            "offset": message["offset"],
            "timestamp": None,
            "stored_timestamp": message["ts"],
            "key": message["key"],
            "value": message["payload"],
            "headers": [list(pair) for pair in zip(flat[::2], flat[1::2], strict=True)],
        }

    def _read(self, partition: int, *arguments: str) -> list[dict[str, Any]]:
        lines = self._kcat("-C", "-J", "-t", self._topic, "-p", str(partition), *arguments)
        return [self._record(line) for line in lines.splitlines()]

    def consume(self, step: Step) -> list[dict[str, Any]]:
        def read_all() -> list[dict[str, Any]]:
            parts = range(step["partitions"])
            return [record for p in parts for record in self._read(p, "-o", "beginning", "-e")]

        program.until(lambda: len(read_all()) >= step["count"])  # acks=0 may still be on its way
        return program.in_log_order(read_all())

    def group_consume(self, step: Step) -> list[dict[str, Any]]:
        settings = ("-X", "auto.offset.reset=earliest", "-c", str(step["count"]))
        lines = self._kcat("-J", *settings, "-G", step["group"], self._topic)
        return program.in_log_order([self._record(line) for line in lines.splitlines()])

    def seek_by_time(self, step: Step) -> dict[str, int]:
        # Records carry the time of writing, which is later than the scenario's time.
        return {
            str(p): self._read(p, "-o", f"s@{step['timestamp']}", "-c", "1")[0]["offset"]
            for p in range(step["partitions"])
        }

    def list_offsets(self, step: Step) -> dict[str, list[int]]:
        found = {}
        for partition in range(step["partitions"]):
            ends = []
            for time_ms in (-2, -1):
                query = f"{self._topic}:{partition}:{time_ms}"
                ends.append(int(self._kcat("-Q", "-t", query).rsplit("offset ", 1)[1]))
            found[str(partition)] = ends
        return found


if __name__ == "__main__":
    program.run(Kcat)
