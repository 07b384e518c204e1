"""The parameters of products with codes from their measured tiles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bench.coded_tiles.record import MeasuredTile, by_product, shape_of
from tvm_tile.calibrate.fit import Fit, fit_family
from tvm_tile.calibrate.samples import Floats, TileGroup
from tvm_tile.device import Device
from tvm_tile.tile.coded.few_vectors import CodedProduct, construct_coded

FAMILY = "coded"
PARAMETERS = ("load_cycles", "step_cycles", "start_cycles", "closing_cycles", "overlap_power")


def groups(records: list[MeasuredTile], device: Device) -> list[TileGroup]:
    """The right records as groups, one a product; tiles that are offered no more are left out."""
    found = [_group(product, own, device) for product, own in by_product(records).items()]
    return [group for group in found if len(group.measured)]


def fit(records: list[MeasuredTile], device: Device) -> tuple[Device, Fit, Fit | None]:
    """The device with fitted parameters, the fit, and one to half of the products alone.

    The last one tells how the model does on products that it was not fitted to; ``None`` where
    there is one product only.

    Raises:
        InstallationError: SciPy is missing.
    """
    own = groups(records, device)
    fitted, whole = fit_family(device, FAMILY, PARAMETERS, own)
    half = fit_family(device, FAMILY, PARAMETERS, own[::2], own[1::2])[1] if own[1:] else None
    return fitted, whole, half


def describe(whole: Fit, half: Fit | None) -> str:
    """What to put into a record, in lines."""
    values = [f"{name}: {value:.4g} (± {error:.0%})" for name, value, error in whole.values]
    others = [f"fitted to half of the products: {half.describe()}"] if half else []
    return "\n".join([*values, whole.describe(), *others])


def _group(product: CodedProduct, records: Sequence[MeasuredTile], device: Device) -> TileGroup:
    offered = {shape_of(tile) for tile in construct_coded(product, device)}
    own = [one for one in records if one.shape in offered]

    def predict(at: Device) -> Floats:
        seconds = {shape_of(tile): tile.seconds for tile in construct_coded(product, at)}
        return np.array([seconds[one.shape] for one in own])

    return TileGroup(FAMILY, np.array([one.us * 1e-6 for one in own]), predict)
