"""Run any part of the paper's experiments, again and again, until it is done.

    python -m experiments.run table1 --datasets pol --splits 0-2 --device cuda --time-limit 500
    python -m experiments.run all --small --store build/small

Each finished run is one file in the store and is not run again. ``--time-limit`` ends cleanly with exit code 3 while
something is left to do (1 where something failed); the same command goes on from there, in the middle of a training
where need be, and so it does after Ctrl-C or a kill. ``--cap`` is for
single runs: one that would train longer is recorded as cut, with the steps and epochs that it reached, and taken up
again only under a larger cap. ``--list`` shows what is done and what is not.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import torch

from experiments.cells import ESTIMATORS, NEAR, SETTINGS, SOLVERS, STUDIES, Item, Run, describe
from experiments.data import NotAtHandError
from experiments.execute import Missing, Place, Unfinished, execute
from experiments.store import Record, Store

UNFINISHED = 3
FAILED = 1


def splits(text: str) -> list[int]:
    """ "0-2,5" as [0, 1, 2, 5]."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        try:
            found += range(int(first), int(last or first) + 1)
        except ValueError:
            raise argparse.ArgumentTypeError(f"splits are numbers and ranges like 0-2,5, got {text!r}") from None
    if not found or not all(0 <= k < 10 for k in found):
        raise argparse.ArgumentTypeError(f"splits go from 0 to 9, got {text!r}")
    return found


def selected(args: argparse.Namespace) -> Iterator[Item]:
    """The items asked for, each once."""
    seen = set()
    for name in STUDIES if "all" in args.studies else args.studies:
        study, published, made_up = STUDIES[name]
        datasets = made_up if args.small else [d for d in published if d in (args.datasets or published)]
        for item in study(datasets, args.splits):
            if item.key not in seen and wanted(item, args):
                seen.add(item.key)
                yield item


def wanted(item: Item, args: argparse.Namespace) -> bool:
    """Whether a run passes the filters; what is not a cell of a table always does."""
    if not isinstance(item, Run) or item.solver == "exact":
        return True
    return (
        item.solver in args.solvers
        and item.estimator in args.estimators
        and (args.warm is None or item.warm == args.warm)
        and (args.budgets is None or item.budget is None or item.settings.large or item.budget in args.budgets)
    )


def is_done(item: Item, record: Record | None, cap: float) -> bool:
    """Whether there is nothing to add: a record of the same settings that ended, or was cut by no smaller a cap."""
    if record is None or record["run"] != describe(item):
        return False
    return record["outcome"] != "cut" or record["cap_seconds"] >= cap


def line(record: Record) -> str:
    """A record in one line."""
    if record["run"]["kind"] != "training":
        return f"{record['key']:<48} done"
    how = f"{record['steps']:>4} steps {record['epochs']:>9,.0f} epochs {record['seconds']:>7.1f} s"
    if record["outcome"] != "finished":
        return f"{record['key']:<48} {how}  {record['outcome']} {record.get('why', '')}"
    return f"{record['key']:<48} {how}  LLH {record['test']['llh']:.4f} RMSE {record['test']['rmse']:.4f}"


def work(items: list[Item], place: Place) -> int:
    """Do what is not done; the exit code. An item that fails does not keep the others from being done."""
    left = failed = skipped = 0
    for item in items:
        if is_done(item, place.store.get(item), place.cap):
            continue
        left += 1
        if time.monotonic() >= place.deadline:
            continue
        try:
            record = execute(item, place)
        except Unfinished:
            print(f"{item.key:<48} to be gone on with", flush=True)
        except Missing as needed:
            print(f"{item.key:<48} skipped: run {needed} first", flush=True)
        except NotAtHandError as absent:
            left -= 1
            skipped += 1
            print(f"{item.key:<48} skipped: {absent}", flush=True)
        except Exception as error:  # whatever it was, it is said, and the exit code says so, too
            failed += 1
            print(f"{item.key:<48} failed: {type(error).__name__}: {error}", flush=True)
        else:
            left -= 1
            place.store.put(item, record)
            if record["outcome"] != "cut":
                place.store.tidy(item)
            print(line({"key": item.key, **record}), flush=True)
    done = f"{left} of {len(items)} left" if left else "all done"
    print(f"{done}, {skipped} skipped" if skipped else done)
    return FAILED if failed else UNFINISHED if left else 0


@contextlib.contextmanager
def stopping_cleanly() -> Iterator[None]:
    """Ctrl-C and SIGTERM end the runner and keep the checkpoint: a training would end early, and look whole."""

    def stop(number: int, frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="+", choices=[*STUDIES, "all"])
    parser.add_argument("--datasets", nargs="*", help="default: those of the paper for that study")
    parser.add_argument("--splits", type=splits, default=[0], help="such as 0-2 or 0,3 (default 0)")
    parser.add_argument("--solvers", nargs="*", default=(*SOLVERS, NEAR), choices=(*SOLVERS, NEAR))
    parser.add_argument("--estimators", nargs="*", default=ESTIMATORS, choices=ESTIMATORS)
    parser.add_argument("--warm", action=argparse.BooleanOptionalAction, help="only warm, or only cold, runs")
    parser.add_argument("--budgets", type=float, nargs="*", help="of the budget study, in epochs")
    parser.add_argument("--small", action="store_true", help="made-up data of a few hundred points")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    parser.add_argument("--data", default=None, help="folder of the UCI sets (default: WARMGP_DATA, else a download)")
    parser.add_argument("--store", type=Path, default=Path("experiments/store"))
    parser.add_argument("--time-limit", type=float, default=math.inf, help="seconds after which to end")
    parser.add_argument("--cap", type=float, default=math.inf, help="seconds that one run may train")
    parser.add_argument("--sharing", type=int, default=1, help="runners at once, each with its own datasets")
    parser.add_argument("--list", action="store_true", help="show what is done, and do nothing")
    args = parser.parse_args(arguments)
    unknown = set(args.datasets or ()) - set(SETTINGS)
    if unknown:
        parser.error(f"unknown datasets {', '.join(sorted(unknown))}; known: {', '.join(SETTINGS)}")
    items, store = list(selected(args)), Store(args.store)
    if not items:
        parser.error("nothing matches these datasets and filters")
    if args.list:
        for item in items:
            record = store.get(item)
            other = record is not None and record["run"] != describe(item)
            print(
                f"{item.key:<48} {'of other settings' if other else 'not run'}" if other or not record else line(record)
            )
        return 0
    place = Place(args.device, args.data, store, time.monotonic() + args.time_limit, args.cap, args.sharing)
    with stopping_cleanly():
        return work(items, place)


if __name__ == "__main__":
    sys.exit(main())
