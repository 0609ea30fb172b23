"""How things are computed: how much at a time, in which mode of PyTorch, and fused on a GPU (Triton, ``triton_*.py``).

At a batch of a thousand, a training step is hundreds of operations of a few microseconds each, so that their
number is what it costs; at sixteen thousand it is the bytes that they move. Fusing helps both. The formulas stay
where they belong, plain and differentiable in any way; they ask `are_fused` whether to take the fused operation.
"""

from carre.backend.memory import Progress, available_memory, checked_memory, in_parts, points_at_once, working_memory
from carre.backend.modes import are_available, are_fused, full_precision, fused_operations, outside, untransformed

__all__ = [
    "Progress",
    "are_available",
    "are_fused",
    "available_memory",
    "checked_memory",
    "full_precision",
    "fused_operations",
    "in_parts",
    "outside",
    "points_at_once",
    "untransformed",
    "working_memory",
]
