"""The files of ws-ladder as Python types: the twin of the Rust crate beside it, for the analysis and the Python client.

`schemas` (the types, generated from docs/schemas) → `wire` (JSON → types, strictly, and back) → `meaning` (whether
books balance, a result is valid, an objective is met) and `histogram` (exact merging, percentiles with samples behind
them). Nothing here opens a file. Unknown fields are errors, as in Rust, so that no program half-understands a file.
"""
