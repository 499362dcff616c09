"""Two detectors of change points. Each returns the indexes of the first points after a change.

Otava runs in another process: its environment has an older numpy than the analysis (`analysis/otava`).
"""

from __future__ import annotations

import json
import math
import os
import statistics as stdlib
import subprocess
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import ruptures

# Points on each side of a change.
LEAST_POINTS = 3
# Otava's window and its largest p-value (Fleming et al. 2023).
WINDOW, LARGEST_P = 50, 0.001
# PELT's penalty for a change, in variances times the logarithm of the number of points (Killick et al. 2012).
PENALTY = 3.0
# Median of the absolute difference of two values of a normal distribution, in standard deviations.
_MEDIAN_DIFFERENCE = 0.6745 * math.sqrt(2)
# Histograms are exact to three digits: smaller deviations are rounding, and a penalty of 0 would split any series.
_LEAST_DEVIATION = 0.001

_ROOT = Path(__file__).resolve().parents[3]
# Otava takes milliseconds for a series; this is for thousands of them on a busy machine.
_SECONDS = 600


class DetectorError(Exception):
    """A detector can't run; the text says how to get it."""


def pelt(values: Sequence[float], least_points: int = LEAST_POINTS, penalty: float = PENALTY) -> list[int]:
    """Change points of a series of positive values by PELT, on logarithms, with the noise taken from the differences
    between neighbours, so that a step doesn't count as noise."""
    logs = [math.log(value) for value in values]
    if len(logs) < 2 * least_points:
        return []
    apart = stdlib.median(abs(other - one) for one, other in pairwise(logs))
    deviation = max(apart / _MEDIAN_DIFFERENCE, _LEAST_DEVIATION)
    model = ruptures.KernelCPD(kernel="linear", min_size=least_points).fit(np.array(logs).reshape(-1, 1))
    ends = model.predict(pen=penalty * deviation**2 * math.log(len(logs)))
    # The last end is that of the series.
    return [int(end) for end in ends[:-1]]


def otava(series: Sequence[Sequence[float]]) -> list[list[int]]:
    """Change points of each series by Otava. Raises `DetectorError` if its environment is missing or it fails."""
    if not series:
        return []
    python = _interpreter()
    request = {"series": [list(values) for values in series], "window_len": WINDOW, "max_pvalue": LARGEST_P}
    try:
        answer = subprocess.run(
            [python, _ROOT / "analysis/otava/change_points.py"],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            check=True,
            timeout=_SECONDS,
            # Without the analysis's packages, which are for another environment.
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        )
        return [[int(index) for index in points] for points in json.loads(answer.stdout)]
    except subprocess.CalledProcessError as error:
        last = error.stderr.strip().splitlines()[-1:]
        raise DetectorError(f"Otava failed: {''.join(last) or error}") from error
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        raise DetectorError(f"Otava failed: {error}") from error


def _interpreter() -> Path:
    """The Python of Otava's environment: `OTAVA_PYTHON`, or that which `just` makes in the checkout."""
    python = Path(os.environ.get("OTAVA_PYTHON") or _ROOT / ".tools/otava/bin/python")
    if not python.is_file():
        raise DetectorError(
            f"Otava's environment is missing: there is no {python}; make it with `./justw history-env`,"
            " or name its Python in OTAVA_PYTHON"
        )
    return python
