"""What a report says is what the geometry answers."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch

from carre.report._inputs import as_input
from carre.report._judgment import check_points, warnings_of
from carre.report._measuring import scale_grid
from carre.report._survey import Survey
from carre.report.page import render
from tests.report.fits import (
    circle,
    content_of,
    fitted,
    image_content,
    image_geometry,
    pictures,
    plane_content,
    plane_geometry,
    table_content,
    table_geometry,
)

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning")]


def test_dimension_and_trace_at_every_scale_are_those_of_the_geometry():
    geometry, scales = plane_geometry(), plane_content().scales
    for scale, sigma in enumerate(scales.bandwidth):
        np.testing.assert_array_equal(scales.dimension[scale], geometry.dimension(circle(), sigma))
        values = geometry.eigenvalues(circle(), sigma)
        np.testing.assert_allclose(scales.trace[scale], values.sum(1), rtol=1e-9)
        np.testing.assert_allclose(scales.mean[scale], values.mean(0), rtol=1e-9)
        np.testing.assert_allclose(scales.low[scale], np.quantile(values, 0.25, axis=0), rtol=1e-9)


def test_the_headline_is_the_estimate_of_the_geometry():
    estimate = plane_geometry().estimate_dimension(circle())
    assert str(plane_content().estimate) == str(estimate)


def test_what_was_odd_about_columns_at_the_fit_is_among_the_warnings():
    """And so in the verdict, which is never "clear" with a warning."""
    content, geometry = plane_content(), replace(plane_geometry(), concerns=("column 'id' seems to number the rows",))
    found = warnings_of(geometry, content.estimate, content.scales, content.checked)
    assert found[0] == "Of the table that the geometry was learned from: column 'id' seems to number the rows."
    assert found[1:] == content.warnings
    assert "read the warnings" in render(replace(content, warnings=found))


def test_the_slider_runs_over_the_scales_that_were_compared_at_the_fit():
    geometry = plane_geometry()
    scales = plane_content().scales
    assert scales.bandwidth[scales.chosen] == geometry.bandwidth
    assert len(scales.bandwidth) <= 13
    assert set(scales.bandwidth) <= set(geometry.scale_profile.bandwidth)


def test_another_scale_is_put_among_the_others():
    grid, chosen = scale_grid(plane_geometry(), 0.123)
    assert grid[chosen] == 0.123
    assert (np.diff(grid) > 0).all()
    assert len(grid) <= 13


@pytest.mark.slow
def test_a_scale_that_was_given_at_the_fit_stands_among_those_that_were_trained_on():
    geometry = table_geometry()
    assert geometry.scale_profile is None
    grid, chosen = scale_grid(geometry, geometry.bandwidth)
    np.testing.assert_allclose([grid[0], grid[-1]], geometry.bandwidth_range)
    assert grid[chosen] == 0.25


def test_validity_is_that_of_the_geometry_at_the_checked_rows():
    content = plane_content()
    check = plane_geometry().check(circle()[content.survey.rows[content.checked.points]])
    np.testing.assert_array_equal(content.checked.is_valid, check.valid)
    assert content.checked.reasons == check.reasons
    np.testing.assert_array_equal(content.checked.could_tell, ~np.isnan(check.disagreement))


def test_where_time_is_short_fewer_points_are_checked_and_without_samples():
    geometry, given = replace(plane_geometry(), verbose=False), as_input(plane_geometry(), circle())
    checked = check_points(Survey(geometry, given, np.arange(120), geometry.bandwidth, seconds=1.0, each=1.0))
    assert len(checked.points) == 20
    assert not checked.could_tell.any()
    assert "not compared with a kernel" in checked.note
    np.testing.assert_array_equal(checked.is_clear, geometry.check(circle()[checked.points]).clear_spectrum)
    assert checked.agrees.all()


def test_paths_are_those_between_the_rows_that_were_named():
    geometry, content = plane_geometry(), plane_content()
    assert [path.rows for path in content.paths.found] == [(0, 1), (2, 3)]
    for path in content.paths.found:
        start, end = circle()[path.rows[0]], circle()[path.rows[1]]
        feet = geometry.path(start, end).nodes[0, [0, -1]]
        np.testing.assert_allclose(feet, [start, end], atol=0.1)
        np.testing.assert_allclose(path.straight, (feet[1] - feet[0]).norm(), rtol=1e-6)
        np.testing.assert_allclose(path.nodes[[0, -1]], feet, rtol=1e-6)
        np.testing.assert_allclose(path.places[[0, -1]], feet, rtol=1e-6)
    is_rough = "Threads" in content.paths.note
    if not is_rough:
        lengths = geometry.path(circle()[[0, 2]], circle()[[1, 3]]).length()
        np.testing.assert_allclose([path.length for path in content.paths.found], lengths, rtol=1e-6)


@pytest.mark.slow
def test_without_pairs_two_are_chosen_and_zero_asks_for_none():
    chosen = table_content().paths.found
    assert len(chosen) == 2
    distances = np.linalg.norm(circle(dim=10)[:, None] - circle(dim=10), axis=-1)
    assert all(path.straight > np.median(distances) for path in chosen)
    assert content_of(plane_geometry(), circle(), pairs=0, max_points=20).paths.found == ()


def test_two_columns_are_the_map_and_more_are_seen_along_their_principal_axes():
    np.testing.assert_array_equal(plane_content().map.places, circle())
    content = table_content()
    centered = circle(dim=10) - circle(dim=10).mean(0)
    _, singular, axes = np.linalg.svd(centered, full_matrices=False)
    expected = centered @ axes[:2].T
    np.testing.assert_allclose(np.abs(content.map.places), np.abs(expected), atol=1e-8)
    share = np.square(singular[:2]).sum() / np.square(singular).sum()
    assert f"{share:.0%} of their variance" in content.map.note


def test_coordinates_of_ones_own_are_the_map_and_arrows_follow_them():
    """Along a map that is linear, directions fitted to neighbors are the directions themselves."""
    own = circle() * [3.0, 1.0] + 1.0
    content = content_of(plane_geometry(), circle(), embedding=own, pairs=0)
    np.testing.assert_array_equal(content.map.places, own)
    seen = content.map.arrows[content.scales.chosen, :, 0]
    straight = plane_content().map
    assert np.isin(content.map.arrow_points, straight.arrow_points).any()
    both, first, second = np.intersect1d(content.map.arrow_points, straight.arrow_points, return_indices=True)
    turned = straight.arrows[content.scales.chosen, second, 0] * [3.0, 1.0]
    cosine = (seen[first] * turned).sum(1) / np.linalg.norm(seen[first], axis=1) / np.linalg.norm(turned, axis=1)
    assert len(both) > 10
    # Neighbors lie on a curved line, and directions of the short fit are off by some degrees.
    assert np.median(cosine) > 0.95


def test_directions_are_eigenvectors_of_the_metric_with_their_eigenvalues():
    content = table_content()
    dense = np.asarray(table_geometry().metric(content.survey.array[content.directions.points]))
    vectors, values = content.directions.vectors, content.directions.eigenvalues
    np.testing.assert_allclose(np.einsum("nij,nkj->nki", dense, vectors), values[..., None] * vectors, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=-1), 1.0, atol=1e-6)


def test_a_part_of_the_rows_is_shown_where_there_are_more_than_may_be():
    content = content_of(plane_geometry(), circle(), max_points=30, pairs=[(118, 119)])
    assert len(content.survey.rows) == 30
    assert (np.diff(content.survey.rows) > 0).all()
    np.testing.assert_array_equal(content.survey.array, circle()[content.survey.rows])
    assert len(content.survey.given.points) == 120
    assert content.paths.found[0].rows == (118, 119)


def test_the_data_are_named_by_their_digest():
    expected = hashlib.sha256(circle().tobytes()).hexdigest()
    assert plane_content().origin["data, SHA-256"] == expected


@pytest.mark.slow
def test_images_bring_their_labels_and_their_name():
    content = image_content()
    assert content.survey.given.title == "The geometry of bars"
    assert set(content.survey.label.names) == {"even", "odd"}
    assert content.survey.given.image_shape == (1, 6, 5)
    assert content.survey.label.text(1) == "odd"


@pytest.mark.slow
def test_tensors_and_datasets_are_data_too():
    given = torch.as_tensor(circle())
    content = content_of(plane_geometry(), given, pairs=0, max_points=25)
    assert len(content.survey.rows) == 25
    flat = pictures().images.reshape(40, -1)
    assert content_of(image_geometry(), flat, pairs=0, max_points=5, seconds=0.5).survey.given.image_shape == (1, 6, 5)


def test_a_fit_without_a_denoiser_is_reported_without_what_needs_one():
    geometry = fitted(circle(), method="uncentered", bandwidth=0.25, max_steps=20, width=16)
    content = content_of(geometry, circle())
    assert len(content.checked.points) == 0
    assert "no denoiser" in content.checked.note
    assert "no denoiser" in content.paths.note


def test_the_geometry_stays_as_it_was():
    geometry = plane_geometry()
    before = dict(geometry.__dict__)
    content_of(geometry, circle(), pairs=0, max_points=10)
    assert geometry.__dict__.keys() == before.keys()
    assert all(geometry.__dict__[name] is value for name, value in before.items())


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_points_are_reported_too(n):
    content = content_of(plane_geometry(), circle()[:n])
    assert len(content.survey.rows) == n
    assert np.isfinite(content.map.places).all()
