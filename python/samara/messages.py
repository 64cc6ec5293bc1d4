# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Parts of the messages to the learner process that actor processes and remote actors share: a spec, an error."""

from __future__ import annotations

import math
import os
import traceback
from typing import Any

from samara.environment import SetupError, Spec

LINE_MAX = 800  # of a message, whatever it quotes
NOT_OWN = (os.path.dirname(__file__), os.path.dirname(os.__file__), "<")  # frames of samara's and of Python's own library


def one_line(error: BaseException) -> str:
    """Returns type and message on one line, as the learner process quotes them."""
    text = " ".join(str(error).encode(errors="replace").decode().split())
    text = text if len(text) <= LINE_MAX else f"{text[:LINE_MAX]}... ({len(text)} characters)"
    if isinstance(error, SetupError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def own_line(error: BaseException) -> str:
    """Returns "FILE:LINE" of the last call in code of the user's, or else of an installed package; "" where there is none."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(NOT_OWN)]
    own = [f for f in frames if "site-packages" not in f.filename] or [f for f in frames if "/gymnasium/" not in f.filename]
    return f"{os.path.basename(own[-1].filename)}:{own[-1].lineno}" if own else ""


def bounds(values: tuple[float, ...]) -> list[float | None]:
    """Returns the bounds as JSON has them, which knows no infinity: an open bound is null."""
    return [float(v) if math.isfinite(v) else None for v in values]


def spec_fields(spec: Spec) -> dict[str, Any]:
    """Returns the fields of a spec as JSON has them."""
    return vars(spec) | {"action_low": bounds(spec.action_low), "action_high": bounds(spec.action_high)}
