"""Builds bundles on disk as `ladder run` leaves them, with real V2 histograms and books that balance.

A test specifies only what is special about its trial; the rest is derived, so that the files agree and the checks find
exactly the fault that a test introduces. `spec` is the specification; `histograms`, `workers`, `services` and `results`
derive the contents from it; `files` writes them; `example` is a whole run.
"""

from tests.bundles.files import bundle, edit
from tests.bundles.histograms import Json, histogram, lognormal
from tests.bundles.spec import TrialSpec, open_load, p99_at_most

__all__ = ["Json", "TrialSpec", "bundle", "edit", "histogram", "lognormal", "open_load", "p99_at_most"]
