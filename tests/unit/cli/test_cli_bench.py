"""Percentiles of the built-in load against counting."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.bench import Measured, percentile_ms


@given(st.lists(st.integers(0, 50), min_size=1, max_size=40), st.sampled_from([0.5, 0.99, 1.0]))
def test_a_percentile_is_the_least_time_that_covers_the_share(ms: list[int], share: float) -> None:
    found = percentile_ms(sorted(one / 1000 for one in ms), share)
    covering = [one for one in ms if sum(other <= one for other in ms) >= share * len(ms)]
    assert found == min(covering)


def test_a_load_without_latencies_has_none() -> None:
    row = Measured("consume", records=10, bytes=10_000_000, seconds=2.0).row()
    assert (row["records_per_s"], row["mb_per_s"], row["p50_ms"]) == (5, 5.0, None)
