"""Builds bundles on disk as `ladder run` leaves them, with real V2 histograms and books that balance.

A test says what is special about its trial; everything else follows from it, so that a fixture agrees with itself and
the checks find exactly the fault that was planted. `spec` is what a test says, `histograms`, `workers`, `services` and
`results` derive the files from it, `files` writes them, and `example` is a whole run.
"""

from tests.bundles.files import bundle, edit
from tests.bundles.histograms import Json, histogram, lognormal
from tests.bundles.spec import TrialSpec, open_load, p99_at_most

__all__ = ["Json", "TrialSpec", "bundle", "edit", "histogram", "lognormal", "open_load", "p99_at_most"]
