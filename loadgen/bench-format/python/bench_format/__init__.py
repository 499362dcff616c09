"""The formats of ws-ladder as Python types, for the analysis and the Python client; the twin of the Rust crate beside
it.

`schemas` (the types, generated from docs/schemas) → `wire` (parsed JSON to types and back, strictly) → `meaning`
(whether books balance, a result is valid, an objective is met) and `histogram` (exact merging, percentiles). Nothing
here opens a file. Unknown fields are errors, as in Rust, so that no program misreads a newer file.
"""
