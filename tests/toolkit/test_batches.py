"""Work in parts is the work."""

import torch

from carre.toolkit.batches import in_parts

HUGE = 10**12


def test_parts_give_what_the_whole_gives_and_say_how_far_they_are(rng):
    left, right = torch.randn(2, 7, 3, generator=rng)
    told = []
    total, product = in_parts(
        lambda a, b: (a + b, (a * b).sum(1)), left, right, numbers_per_item=HUGE, progress=told.append
    )
    torch.testing.assert_close(total, left + right)
    torch.testing.assert_close(product, (left * right).sum(1))
    assert told == [i / 7 for i in range(1, 8)]


def test_what_fits_is_done_at_once(rng):
    told = []
    in_parts(lambda a: a, torch.zeros(1000, 3), numbers_per_item=3, progress=told.append)
    assert told == [1.0]
