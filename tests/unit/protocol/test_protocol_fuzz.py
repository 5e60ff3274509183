"""A short run of the parser fuzzer; `make fuzz` runs a long one."""

from fuzz_parser import Fuzzer

COUNT = 10_000


def test_damaged_requests_are_refused_and_nothing_worse() -> None:
    fuzzer = Fuzzer(seed=20_000)
    fuzzer.run(COUNT)
    assert fuzzer.refused > COUNT // 10
