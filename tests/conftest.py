"""For all tests: how long one example takes depends on what else the machine does, so none has a deadline."""

from hypothesis import settings

settings.register_profile("any load", deadline=None)
settings.load_profile("any load")
