"""The promise about all points of the battery together, counted where the run is led from.

``tests/conftest.py`` registers this as a plugin: who leads the workers of pytest-xdist collects no tests, and would not
know of a conftest.py down here.
"""

from __future__ import annotations

import pytest

POINTS = "points of a data set"
"""The name of a test's property with its counts: a dictionary with the keys of :data:`tally`."""

SHARE = 0.999
"""The share of points, over all fits that say that they converged, at which a mean has to be right."""

CONVERGED, FEW = 0.85, 50
"""The share of fits that have to converge, where there are more than a few: who never says so breaks no promise."""

tally = {"fits": 0, "converged": 0, "refused": 0, "points": 0, "wrong": 0}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    for name, counts in report.user_properties if report.when == "call" else ():
        if name == POINTS:
            for key, value in counts.items():
                tally[key] += value


def broken() -> bool:
    given_up = tally["fits"] > FEW and tally["converged"] < CONVERGED * tally["fits"]
    return given_up or tally["wrong"] > (1 - SHARE) * tally["points"]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    led_from_here = not hasattr(session.config, "workerinput")
    if led_from_here and exitstatus == 0 and broken():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if tally["points"] and (broken() or config.getoption("hostile_scale") >= 0.2):
        share = 1 - tally["wrong"] / tally["points"]
        counts = f"{tally['fits']} fits ({tally['converged']} converged, {tally['refused']} refused)"
        terminalreporter.write_line(
            f"hostile data, seed {config.getoption('hostile_seed')}: {counts}, {tally['points']:,} points, "
            f"{100 * share:.3f}% of the means within 0.1 predictive std "
            f"({100 * SHARE:g}% promised, and {100 * CONVERGED:g}% of the fits to converge)",
            red=broken(),
        )
