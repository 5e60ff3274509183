"""A Spark session that is tuned for small micro-batches, or one sentence why there is none.

Two settings take the smallest micro-batch from 146 to 45 ms: Unix sockets between the JVM and
Python, and a checkpoint manager that starts fewer processes for each file (Hadoop has `chmod` done
by one wherever its native library is missing: two for each of the two files that a micro-batch
logs, its checksum's included).

A third one takes a tenth of the JVM's CPU from a read: Arrow for Java asks at every field of every
row whether it lies inside of its buffer. Spark asks Arrow only for rows that a batch has, and the
lengths in a batch are those that Arrow's own code or the decoder, which checks them, has written.

The checkpoint manager looks whether a file is there before it puts one in place, and does not hold
others off meanwhile. If two drivers plan the same micro-batch on one checkpoint at the same moment,
both may log it, with different ends. The sink publishes that of one, and the other goes on behind
its own end: records in between can be skipped. Who cannot keep two drivers apart takes Spark's own
manager.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.spark.pipelines.definition import Definition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_VERSION_MIN = 17  # what Spark 4 needs

_UNCHECKED_ARROW = "-Darrow.enable_unsafe_memory_access=true"
TUNED = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    ),
    # The default options: those that a cluster or a user adds stay theirs.
    "spark.driver.defaultJavaOptions": _UNCHECKED_ARROW,
    "spark.executor.defaultJavaOptions": _UNCHECKED_ARROW,
    # By default 64 MB: smaller Arrow batches reach Python faster where rows are large.
    "spark.sql.execution.arrow.maxBytesPerBatch": "1m",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}
# Of a Spark on this machine alone, which nobody else is to reach.
LOCAL = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    # What Spark remembers for pages that are not shown: by default a thousand jobs with their
    # plans, which a pipeline fills its heap with for as many micro-batches.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.sql.ui.retainedExecutions": "20",
}
_JAVA_SECONDS_MAX = 30


class JavaMissing(Exception):
    """Spark cannot run here; the sentence says what to install."""


def check_java(environment: Mapping[str, str] | None = None) -> None:
    """JavaMissing unless a Java that Spark can use is found."""
    found = environment if environment is not None else os.environ
    home = found.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java", path=found.get("PATH"))
    advice = (
        f"install Java {JAVA_VERSION_MIN} or newer (Debian and Ubuntu: "
        "apt-get install default-jre-headless)"
    )
    if java is None or not os.path.exists(java):
        where = f"JAVA_HOME is {home}, where there is no Java" if home else "there is no Java here"
        raise JavaMissing(f"Pipelines run on Spark, which needs Java, and {where}: {advice}.")
    said = subprocess.run(
        [java, "-version"],
        capture_output=True,
        text=True,
        timeout=_JAVA_SECONDS_MAX,
        check=False,
    )
    version = re.search(r'version "(?:1\.)?(\d+)', said.stderr)
    if said.returncode != 0 or version is None:
        raise JavaMissing(f"{java} does not run: {advice}.")
    if int(version[1]) < JAVA_VERSION_MIN:
        raise JavaMissing(f"{java} is Java {version[1]}, which is too old for Spark: {advice}.")


def settings_of(definition: Definition, master: str | None, cores: int) -> dict[str, str]:
    """The Spark settings of a pipeline; its own come last."""
    settings = {"spark.app.name": definition.name, "spark.master": master or "local[*]", **TUNED}
    if settings["spark.master"].startswith("local"):
        settings |= LOCAL
        # 200 tasks for every aggregation, the default, are for clusters.
        settings["spark.sql.shuffle.partitions"] = str(max(2, cores))
    return {**settings, **definition.spark}


def spark_session(definition: Definition, master: str | None = None) -> SparkSession:
    """Start Spark for the pipeline."""
    check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the one that has Ottla
    from pyspark.sql import SparkSession

    from ottla.spark import register

    builder = SparkSession.Builder()
    for name, value in settings_of(definition, master, os.cpu_count() or 1).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    register(session)
    return session
