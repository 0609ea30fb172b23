"""Modes hold inside, and the caller's choice is restored."""

import torch

from carre.backend.modes import full_precision


def test_products_are_exact_inside_and_the_callers_choice_is_restored():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        with full_precision():
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)
