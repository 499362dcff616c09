"""Reads a bundle and writes its report. The modules, in the order in which data passes them:

`bench_format` (the files as types, another package) → `load` (a folder → a bundle) → `checks` (recomputes figures and
compares them) → `ladders` (trials → tiers) → `statistics`, `compare` → `tables`, `charts` → `frames` (CSV), `report`
(HTML, Markdown).
"""

__version__ = "0.1.0"
