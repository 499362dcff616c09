"""The history of figures over runs: a folder of bundles → series → change points that two detectors agree on.

`points` (bundles → series) → `detectors` (each finds change points) → `changes` (what both name) → `acknowledged`
(which changes are known) → `trend` (all together) → `printing`, `page`; `command` is the command line.
"""
