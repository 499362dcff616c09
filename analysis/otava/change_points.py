"""Reads series as JSON from standard input and writes the change points that Otava finds in each.

It runs in an environment of its own (`requirements.txt` beside it): input is `{"series": [[…], …], "window_len": …,
"max_pvalue": …}`, output is a list for each series with the indexes of the first points after a change.
"""

from __future__ import annotations

import json
import sys

from otava.analysis import compute_change_points


def main() -> None:
    """Reads one request from standard input and writes its change points to standard output."""
    asked = json.load(sys.stdin)
    options = {name: asked[name] for name in ("window_len", "max_pvalue")}
    # Lists: given a numpy array, Otava doesn't cut its windows, and raises or misplaces points.
    found = [compute_change_points(list(series), **options)[0] for series in asked["series"]]
    json.dump([sorted(int(point.index) for point in points) for points in found], sys.stdout)


if __name__ == "__main__":
    main()
