"""A property says nothing about how fast a shared machine is: no deadlines."""

from hypothesis import settings

settings.register_profile("storage", deadline=None)
settings.load_profile("storage")
