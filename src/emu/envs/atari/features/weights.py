"""The weights of pre-trained networks: safetensors files with torchvision's own names.

PyTorch's `.pth` files are pickles, which may run anything when they are read. They are converted once, with PyTorch
itself (docs/envs/atari.md); a safetensors file holds arrays and nothing else.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from emu.errors import EmuError
from emu.files import cache_folder, reason


class WeightsError(EmuError):
    """A weights file that is missing, damaged, or of another kind."""


def default_path(kind: str) -> Path:
    """Where the weights of a network are looked for unless told otherwise."""
    return cache_folder() / "weights" / f"{kind}.safetensors"


def read_weights(kind: str, official: str, given: str | None = None) -> dict[str, np.ndarray]:
    """All arrays of the file given, else of the one in the cache folder; `official` is torchvision's file of them."""
    path = Path(given).expanduser() if given else default_path(kind)
    if not path.is_file():
        raise WeightsError(
            f"The weights of the pre-trained network are missing: there is no {path}. {_conversion(kind, official)} "
            'For a network with random weights, ask for it: --env-args \'{"features": "random"}\'.'
        )
    try:
        return safetensors.load(path.read_bytes())
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise WeightsError(
            f"{path} is not a whole safetensors file: {reason(error)}. {_conversion(kind, official)}"
        ) from error


def _conversion(kind: str, official: str) -> str:
    return (
        f"Download https://download.pytorch.org/models/{official} and convert it with PyTorch: "
        "import torch, safetensors.torch; "
        f'safetensors.torch.save_file(torch.load("{official}", weights_only=True), "{kind}.safetensors"). Put it into '
        f'{default_path(kind).parent}, or say where it is with --env-args \'{{"weights": "PATH"}}\'.'
    )
