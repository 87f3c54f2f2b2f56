"""The processes that train one model together, and all that goes between them: collectives of torch.distributed.

A team is what ``torchrun`` starts, or what a script has initialised itself. Every process runs the same program on the
same data; sums over rows, the rows of a block and rank 0's decisions go through here and through nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

Made = TypeVar("Made")

PATIENCE = timedelta(hours=2)
"""How long a process waits for the others: rank 0 alone chooses a kernel and makes the start, which takes minutes. One
that has died is noticed at once, by the connection that it closes and by ``torchrun``."""


JOINED = "WARMGP_PROCESS"
"""The variable in which a process that has joined a team leaves its number, for those that it starts."""


PANEL = 2**26
"""Numbers of an array by rows that are gathered at once, of all processes together: a quarter of a GiB in float32."""


class TeamError(RuntimeError):
    """Says that the processes of a fit cannot go on together."""


KINDS: tuple[type[BaseException], ...] = (
    KeyboardInterrupt, torch.linalg.LinAlgError, FloatingPointError, FileNotFoundError, PermissionError, OSError,
    MemoryError, ValueError, TypeError,
)  # fmt: skip
"""The errors that are raised as what they are on other ranks; all others are RuntimeErrors there."""


class Piece(NamedTuple):
    """Holds some rows of an array that is divided by rows: whose they are, which, and their values."""

    rank: int
    rows: slice
    values: Tensor


class _Failed:
    """Carries an error of rank 0 to the others, by its kind and its words: an error may hold what cannot be sent."""

    def __init__(self, error: BaseException) -> None:
        self.kind = next((number for number, kind in enumerate(KINDS) if isinstance(error, kind)), None)
        self.words = str(error) if self.kind is not None else f"{type(error).__name__}: {error}"

    @property
    def error(self) -> BaseException:
        """The error, as another rank raises it."""
        return RuntimeError(self.words) if self.kind is None else KINDS[self.kind](self.words)


class Team:
    """Holds the rank of this process and the number of all, and speaks to the others.

    ``sent`` counts the bytes of what this process has handed to collectives, by their names: what a network has to
    move grows with it.
    """

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self._place = "cuda" if dist.get_backend() == "nccl" else "cpu"  # gloo moves memory of the host
        self.sent: dict[str, int] = {}

    @property
    def first(self) -> bool:
        """Whether this process decides, prints and writes for all."""
        return self.rank == 0

    def rows(self, n: int, rank: int | None = None) -> slice:
        """Returns the rows of n that a process has, this one by default: as many as the others, or one fewer."""
        rank = self.rank if rank is None else rank
        return slice(rank * n // self.size, (rank + 1) * n // self.size)

    def owner(self, row: int, n: int) -> int:
        """Returns the rank that has a row of n."""
        return next(rank for rank in range(self.size) if row < self.rows(n, rank).stop)

    # -- tensors -----------------------------------------------------------------------------------------------------
    def sum(self, values: Tensor) -> Tensor:
        """Returns the sum of what the processes have, to the same bits on all of them."""
        if self.size == 1:
            return values
        moved = self._counted("sum", values)
        moved = moved.clone() if moved.data_ptr() == values.data_ptr() else moved
        with _explained():
            dist.all_reduce(moved)
        return moved.to(values.device)

    def panels(self, own: Tensor, n: int) -> Iterator[list[Piece]]:
        """Yields the n rows of an array, of which each process has its own, in panels of at most ``PANEL`` numbers.

        A panel has a piece of every process that has rows left. All processes have to take all panels.
        """
        held = [self.rows(n, rank) for rank in range(self.size)]
        longest = max(rows.stop - rows.start for rows in held)
        count = max(1, PANEL // max(1, self.size * own.shape[1:].numel()))
        for first in range(0, longest, count):
            mine = self._counted("gather", own[first : first + count])
            padded = mine.new_zeros(min(count, longest - first), *mine.shape[1:])
            padded[: len(mine)] = mine
            parts = [torch.empty_like(padded) for _ in held]
            with _explained():
                dist.all_gather(parts, padded)
            cuts = [slice(rows.start + first, min(rows.start + first + count, rows.stop)) for rows in held]
            yield [
                Piece(rank, rows, part[: rows.stop - rows.start].to(own.device))
                for rank, (rows, part) in enumerate(zip(cuts, parts, strict=True))
                if rows.stop > rows.start
            ]

    def gather(self, own: Tensor, n: int) -> Tensor:
        """Returns the n rows of an array, of which each process has its own, on all of them."""
        return own if self.size == 1 else self._filled(own.new_empty(n, *own.shape[1:]), own)

    def gather_to_first(self, own: Tensor, n: int) -> Tensor:
        """Returns the same on rank 0 alone, in the memory of the host; the others return their own rows."""
        if self.size == 1:
            return own
        if self.first:
            return self._filled(torch.empty(n, *own.shape[1:], dtype=own.dtype), own)
        for _ in self.panels(_as_bytes(own), n):
            pass
        return own

    def _filled(self, whole: Tensor, own: Tensor) -> Tensor:
        """Writes all rows into ``whole``, (n, …), panel by panel, and returns it."""
        target = _as_bytes(whole)
        for panel in self.panels(_as_bytes(own), len(whole)):
            for piece in panel:
                target[piece.rows] = piece.values.to(target.device)
        return whole

    def every(self, values: Tensor) -> Tensor:
        """Returns what each process has, (size, …), for values of one shape."""
        if self.size == 1:
            return values[None]
        mine = self._counted("every", values)
        parts = [torch.empty_like(mine) for _ in range(self.size)]
        with _explained():
            dist.all_gather(parts, mine)
        return torch.stack(parts).to(values.device)

    def from_rank(self, rank: int, make: Callable[[], Tensor], like: Tensor) -> Tensor:
        """Returns what one process makes, in the shape and dtype of ``like``.

        Where numbers are the reason that it cannot, all of them raise LinAlgError, and may go on in another way.
        """
        if self.size == 1:
            return make()
        told = like.new_zeros(like.numel() + 1)  # the last number says whether it failed
        failed = None
        if self.rank == rank:
            try:
                told[:-1] = make().to(like.dtype).reshape(-1)
            except (torch.linalg.LinAlgError, FloatingPointError) as error:
                told[-1], failed = 1.0, error
        moved = self._counted("from_rank", told)
        with _explained():
            dist.broadcast(moved, rank)
        if failed is not None:
            raise failed
        if float(moved[-1]) != 0.0:
            raise torch.linalg.LinAlgError(f"rank {rank} could not solve on its block of H")
        return moved[:-1].view(like.shape).to(like.device)

    def _counted(self, name: str, values: Tensor) -> Tensor:
        """Returns values as the backend takes them, and counts their bytes."""
        self.sent[name] = self.sent.get(name, 0) + values.numel() * values.element_size()
        return values.to(self._place).contiguous()

    # -- decisions ---------------------------------------------------------------------------------------------------
    def from_first(self, make: Callable[[], Made]) -> Made:
        """Returns what rank 0 makes; an error of it is raised on every rank."""
        if self.size == 1:
            return make()
        box: list[Any] = [None]
        failed: BaseException | None = None
        if self.first:
            try:
                box[0] = make()
            except (Exception, KeyboardInterrupt) as error:
                failed = error
                box[0] = _Failed(error)
        with _explained():
            dist.broadcast_object_list(box, 0)
        if failed is not None:
            raise failed
        if isinstance(box[0], _Failed):
            raise box[0].error
        return box[0]

    def every_object(self, mine: Made) -> list[Made]:
        """Returns what each process has, in the order of ranks, on all of them."""
        every: list[Any] = [mine] * self.size
        if self.size > 1:
            with _explained():
                dist.all_gather_object(every, mine)
        return every

    def every_made(self, make: Callable[[], Made]) -> list[Made]:
        """Returns what each process makes, in the order of ranks, on all of them; an error of one is raised on all."""
        mine: Any
        failed: BaseException | None = None
        try:
            mine = make()
        except (Exception, KeyboardInterrupt) as error:
            failed, mine = error, _Failed(error)
        every = self.every_object(mine)
        if failed is not None:
            raise failed
        for one in every:
            if isinstance(one, _Failed):
                raise one.error
        return every

    def divided(self, n: int, make: Callable[[slice], Made]) -> list[Made]:
        """Returns what the processes make of their rows of n each, in order, on all of them; those without any make
        nothing. An error of one is raised on all."""
        mine = self.rows(n)
        every = self.every_made(lambda: (n, [make(mine)] if mine.stop > mine.start else []))
        for rank, (its, _) in enumerate(every):
            if its != every[0][0]:
                raise TeamError(f"rank {rank} of {self.size} has {its:,} rows where rank 0 has {every[0][0]:,}")
        return [made for _, some in every for made in some]

    def check_same(self, told: Sequence[tuple[str, str]]) -> None:
        """Raises on every rank, by name, where one of them has another version, other data or other settings.

        ``told`` has pairs of what is compared and its mark.
        """
        all_told = self.every_object(list(told))
        for rank, its in enumerate(all_told):
            differing = [name for (name, mark), (_, other) in zip(all_told[0], its, strict=False) if mark != other]
            if len(its) != len(all_told[0]) or differing:
                what = f"other {' and '.join(differing)}" if differing else "another fit"
                raise TeamError(
                    f"rank {rank} of {self.size} has {what} "
                    "than rank 0: every process has to run the same program on the same data, with the same version"
                )


def _as_bytes(A: Tensor) -> Tensor:
    """Returns an array of short numbers, (n, c), as the bytes that it is made of, which every backend moves."""
    return A.contiguous().view(torch.uint8) if A.dtype == torch.int16 else A


@contextmanager
def _explained() -> Iterator[None]:
    """Turns the errors of a collective into one that says what to do."""
    try:
        yield
    except RuntimeError as error:
        raise TeamError(
            "a process that trained with this one has ended or does not answer, so that this fit cannot go on "
            f"({str(error).splitlines()[0]}). Look at the first error of the job; with checkpoint= (--checkpoint) the "
            "same command goes on from the last checkpoint, on any number of processes"
        ) from error


def writes() -> bool:
    """Says whether this process is the one of its team that writes: rank 0, or one that is alone. It joins no team, for
    which it would have to wait."""
    return not (dist.is_available() and dist.is_initialized()) or dist.get_rank() == 0


def leave_team() -> None:
    """Ends the team that :func:`current_team` has made: nothing can be exchanged any more."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def team_size() -> int:
    """Returns how many processes train together; 1 for one that is alone. It joins no team, for which it would have to
    wait."""
    if not dist.is_available():
        return 1
    if dist.is_initialized():
        return dist.get_world_size()
    return int(os.environ["WORLD_SIZE"]) if _starts_together() else 1


def current_team() -> Team | None:
    """Returns the team that this process belongs to; None where it is alone.

    Under ``torchrun`` the processes find each other here, at the first call: by NCCL where each has a GPU of its own,
    else by gloo.
    """
    if not dist.is_available():
        return None
    if not dist.is_initialized():
        if not _starts_together():
            return None
        os.environ[JOINED] = str(os.getpid())
        local, here = int(os.environ["LOCAL_RANK"]), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        gpus = torch.cuda.device_count()
        if gpus:
            torch.cuda.set_device(local % gpus)
        dist.init_process_group("nccl" if gpus >= here else "gloo", timeout=PATIENCE)
    return Team()


def _starts_together() -> bool:
    """Says whether ``torchrun`` has started this process as one of several: not as a child of one that has joined them,
    which is on its own."""
    if "TORCHELASTIC_RUN_ID" not in os.environ or int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return False
    return os.environ.get(JOINED, str(os.getpid())) == str(os.getpid())
