"""Reads a bundle and writes its report. In the order in which data walks:

`bench_format` (the files as types, another package) → `load` (a folder → a bundle) → `checks` (what can be recomputed,
is) → `ladders` (trials → tiers) → `statistics`, `compare` → `tables`, `charts` → `frames` (CSV), `report` (HTML,
Markdown).
"""

__version__ = "0.1.0"
