"""What a fit is told is checked before anything is computed."""

import pytest
import torch
from torch import nn

from carre.fitting import FitSettings, choose_device
from carre.networks import UNetSettings


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("network", ["unet", UNetSettings, {"channels": 8}, nn.Linear, 3], ids=str)
def test_what_is_no_network_is_refused_before_what_goes_with_one(network):
    with pytest.raises(ValueError, match="network must be a torch module, a UNetSettings or None; got"):
        FitSettings(network=network, rank=2, method="two-stage")


@pytest.mark.parametrize("network", [None, UNetSettings(8), nn.Linear(2, 2)], ids=str)
def test_networks_are_taken(network):
    assert FitSettings(network=network).network is network


@pytest.mark.parametrize(("name", "value"), [("width", 64), ("n_blocks", 2), ("block", "plain")])
@pytest.mark.parametrize("network", [None, UNetSettings(8)], ids=["default", "sizes"])
def test_options_for_tables_are_refused_for_images_only(name, value, network):
    settings = FitSettings(**{name: value}, network=network)
    with pytest.raises(ValueError, match=rf"{name} must be .* for images.*got {value!r}.*UNetSettings"):
        settings.unet((1, 8, 8))
    assert FitSettings(**{name: value}).unet(None) is None


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("device", ["meta", torch.device("meta"), "abacus", 1.5])
def test_devices_that_do_not_compute_are_refused(device):
    with pytest.raises(ValueError, match="device must be one"):
        choose_device(device, torch.empty(0))


def test_the_cpu_is_taken_where_it_is_asked_for():
    assert choose_device("cpu", torch.empty(0)) == torch.device("cpu")
