"""A property says nothing about how fast a shared machine is: no deadlines."""

import os

from hypothesis import settings

# The same inputs on every machine, so that a change is what turns a run red. OTTLA_EXPLORE=1
# (`make long`) draws new ones.
settings.register_profile("steady", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.load_profile("explore" if os.environ.get("OTTLA_EXPLORE") else "steady")
