"""Both directions can be compiled where no cache can be written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# As root every place can be written, so it is said that none can.
PROGRAM = """
import os
os.access = lambda *arguments: False
import {module}
import numba
assert os.path.isdir(numba.config.CACHE_DIR), repr(numba.config.CACHE_DIR)
"""


@pytest.mark.parametrize("module", ["decode_kernels", "encode_kernels"])
def test_where_no_cache_can_be_written_a_temporary_one_is_made(module: str, tmp_path: Path) -> None:
    program = PROGRAM.format(module=f"ottla.spark.{module}")
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr.decode()
