"""A broker may use as many descriptors as its system allows, whatever its shell was given."""

import resource

from ottla.runtime.real import real_runtime


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
        runtime = real_runtime()
        raised, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert raised == runtime.descriptors_max
        assert raised >= min(soft, 1 << 20)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
