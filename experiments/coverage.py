"""What was run and what was not."""

from __future__ import annotations

from dataclasses import asdict

from experiments.cells import SETTINGS, STUDIES, Item, Run, cells
from experiments.published import Papers
from experiments.store import Record
from experiments.summary import Found, by_run, is_finished, plain
from experiments.tables import markdown

NOT_AT_HAND = {"3droad", "song", "buzz"}


def is_current(record: Record) -> bool:
    """Whether a record is of the settings that its dataset has now."""
    return record["run"]["settings"] == asdict(SETTINGS[record["run"]["dataset"]])


def coverage(records: list[Record], found: Found, papers: Papers, others: set[str]) -> str:
    """``others`` are keys of measurements, which are no trainings."""
    machines = sorted({name for record in records for name in record["machine"]["device"].split("; ")})
    hours = sum(record["seconds"] for record in records) / 3600
    parts = [f"{len(records)} trainings, {hours:.1f} hours of training, on: {'; '.join(machines) or 'nothing yet'}."]
    datasets = [d for d in SETTINGS if any(cell[0] == d for cell in found)]
    if datasets:
        parts.append(markdown(["set", "", "finished", "cut", "not run"], [_row(records, d) for d in datasets]))
    parts += _studies({record["key"] for record in records} | others, datasets)
    absent = sorted({cell[0] for cell in papers} - {cell[0] for cell in found})
    if absent:
        why = " (their data are not at hand)" if set(absent) <= NOT_AT_HAND else ""
        parts.append(f"Of the paper's sets not run at all: {', '.join(absent)}{why}.")
    failed = [f"{record['key']} ({record['why']})" for record in records if record["outcome"] == "failed"]
    if failed:
        parts.append(f"Failed: {'; '.join(failed)}.")
    unsolved = [r["key"] for r in records if is_finished(r) and r["run"]["budget"] is None and not r["converged"]]
    if unsolved:
        parts.append(f"A solve ended short of the tolerance, so that costs are lower bounds: {', '.join(unsolved)}.")
    caps = {
        kind: sorted(
            {round(r["cap_seconds"]) for r in records if r["outcome"] == "cut" and _large(r) == (kind == "large")}
        )
        for kind in ("small", "large")
    }
    limits = [f"{kind} sets after {caps[kind][0]} to {caps[kind][-1]} s" for kind in caps if caps[kind]]
    if limits:
        parts.append(f"Runs were cut that would have trained longer than a limit: {', '.join(limits)} of training.")
    if any("shared" in name for name in machines):
        parts.append(
            "Several runners shared the device for most of the runs. Seconds depend on what the others did, by more "
            "than a factor of two between splits of one cell; epochs do not depend on it. Seconds outside the solver "
            "include the drawing of random numbers, which happens on the CPU: once with warm starts, at every step "
            "without. So the solver's seconds are the ones to compare, and ratios of seconds are rough. Ours are "
            "float32 on the devices named above, the paper's double precision on an A100."
        )
    if any("H200" in name for name in machines):
        parts.append("On a GPU solvers look at their residual every eight iterations, and iterations come in eights.")
    if "houseelectric" in datasets:
        parts.append(
            "The order of houseelectric's rows, on which the splits depend, was found again from the public file; a "
            "few single rows may be in other places than the paper's."
        )
    return "\n\n".join(parts)


def _large(record: Record) -> bool:
    return record["run"]["settings"]["large"]


def _row(records: list[Record], dataset: str) -> list[str]:
    """One dataset's cells over the splits that were begun: how many ended, were cut, or are missing."""
    own = [r for r in by_run(records, dataset=dataset) if plain(r) and r["run"]["solver"] != "exact"]
    splits = sorted({record["run"]["split"] for record in own})
    total = 6 if SETTINGS[dataset].large else 12
    done = {
        split: (sum(map(is_finished, (mine := by_run(own, split=split)))), len(mine)) for split in splits
    }  # fmt: skip
    exact = [r for r in by_run(records, dataset=dataset, solver="exact") if is_finished(r)]
    what = f"{len(exact)} × exact training" if exact else ""
    return [
        f"**{dataset}**", what,
        "; ".join(f"split {split}: {ended} of {total}" for split, (ended, _) in done.items()) or "–",
        "; ".join(f"split {split}: {begun - ended}" for split, (ended, begun) in done.items() if begun > ended) or "–",
        "; ".join(f"split {split}: {total - begun}" for split, (_, begun) in done.items() if begun < total) or "–",
    ]  # fmt: skip


def _studies(keys: set[str], datasets: list[str]) -> list[str]:
    """Of the studies beside the tables, how much there is of the first split of those sets."""
    said = []
    for name, (study, published, made_up) in STUDIES.items():
        if name in ("table1", "large"):
            continue
        for dataset in [d for d in (*published, *made_up) if d in datasets]:
            items: list[Item] = [item for item in study([dataset], [0]) if not _is_cell(item)]
            there = sum(item.key in keys for item in items)
            if there < len(items):
                said.append(f"{name} on {dataset} ({there} of {len(items)})")
    return [f"Studies that are not whole on split 0: {'; '.join(said)}."] if said else []


def _is_cell(item: Item) -> bool:
    """Whether an item is in a table, too."""
    return isinstance(item, Run) and (item.solver == "exact" or item in set(cells(item.dataset, item.split)))
