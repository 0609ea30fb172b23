"""How many rows the factor of the metric needs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from carre.toolkit.scale import ScaleProfile

# A smooth factor of a field of d-dimensional projectors needs up to 2d − 1 rows, and a few more help training.
_ROWS_PER_DIMENSION, _EXTRA_ROWS = 2, 2


@dataclass(frozen=True)
class RankAdvice:
    """A rank, and why.

    Attributes:
        rank: The recommended number of rows.
        dimension: The largest dimension seen, up to a few odd points.
        reason: Why, in a sentence.

    Example:
        >>> recommend_rank(np.array([4, 4, 4]), rank=4, hull=10)
        RankAdvice(rank=8, dimension=4, reason='rank 4 cuts the dimension off at 4; try 8 and look again')
    """

    rank: int
    dimension: int
    reason: str


def recommend_rank(dimensions: np.ndarray, rank: int, hull: int) -> RankAdvice:
    """Recommend a rank from local dimensions that were found with another one.

    2d + 2 rows for data of dimension d, but no more than twice the hull, beyond which nothing is gained. Where the
    dimensions reach the rank they were found with, they are cut off, and twice that rank is the advice.

    Args:
        dimensions: Local dimensions at samples (`local_dimension`).
        rank: The rank of the field they were found with.
        hull: Dimension of the linear hull of the data, or D.

    Example:
        >>> recommend_rank(np.array([2, 2, 3, 3]), rank=16, hull=10).rank
        8
    """
    if len(dimensions) == 0:
        raise ValueError("dimensions must hold at least one point; got none")
    # One point in fifty may be an outlier.
    dimension = int(np.quantile(dimensions, 0.98, method="higher"))
    most = 2 * hull
    if dimension >= rank and rank < hull:
        advice = min(2 * rank, most)
        return RankAdvice(
            advice, dimension, f"rank {rank} cuts the dimension off at {dimension}; try {advice} and look again"
        )
    advice = min(_ROWS_PER_DIMENSION * dimension + _EXTRA_ROWS, most)
    return RankAdvice(advice, dimension, f"2d + 2 for data of dimension up to {dimension}")


def rank_cuts_off(profile: ScaleProfile, hull: int) -> str | None:
    """Say that the rank is too small at the chosen scale, if it is: its last eigenvalue should be near 0.

    Example:
        >>> from carre.fields import ExactField, ScoreField
        >>> from carre.manifolds import Sphere
        >>> from carre.toolkit import choose_bandwidth
        >>> field, points = ScoreField(ExactField(Sphere(2)), rank=1), Sphere(2).sample(50)
        >>> told = rank_cuts_off(choose_bandwidth(field, points, [0.1], calibrated=False), hull=3)
        >>> told.split(":")[0]
        'rank 1 is too small'
    """
    rank = profile.eigenvalues.shape[1]
    least = float(profile.eigenvalues[profile.chosen][-1])
    if rank >= hull or least <= 0.5:
        return None
    return (
        f"rank {rank} is too small: at the chosen scale even the last eigenvalue averages {least:.2f}, so dimensions "
        f"are cut off. Raise rank (up to {hull})"
    )
