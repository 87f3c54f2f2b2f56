"""The planner by the name that documentation uses; it lives in :mod:`warmgp.planning.planner`."""

from warmgp.planning.planner import Plan, make_plan

__all__ = ["Plan", "make_plan"]
