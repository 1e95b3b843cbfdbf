"""How properties are checked here: the same examples every time, on a machine as slow as it likes."""

from hypothesis import HealthCheck, settings

PATIENT = settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
