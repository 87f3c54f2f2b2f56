"""The shapes of tiles that products take, as they were measured on an H200."""

from __future__ import annotations

from warmgp.operators.triton.points import Points
from warmgp.operators.triton.split import GROUP, LONG, Tile


def good_tile(points: Points, S: int, b: int) -> Tile:
    """Returns a tile, for S columns of V on the tensor core and b points in a sum, that is good on an H200.

    Most were measured. That of long sums has room in its registers for what rounding takes from them. Where there are
    columns beside a group, a stage fewer lets as many programs share a multiprocessor's memory as without them.
    """
    stages = 2 if S > GROUP else 3
    if b >= LONG and points.row_high.shape[1] <= 64:
        return Tile(64, 64, 4, 2)
    if not points.has_products and points.differenced > 8:  # in registers: 4 rows a thread, for 16 columns
        return Tile(128, 64, 4, 2)
    if not points.has_products:
        return Tile(64, 128, 4, stages)
    if points.differenced and points.row_high.shape[1] <= 64:
        return Tile(64, 128, 4, 2)
    if points.row_high.shape[1] <= 64:
        return Tile(64, 64, 4, stages if points.row_high.shape[1] <= 16 else 2, registers=168)
    return Tile(64, 32, 4, 2)
