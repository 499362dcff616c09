"""The files of a bundle as types: the Python side of the Rust crate `bench-format`, module by module.

Nothing here opens a file or computes a figure. Unknown fields are errors and a newer `schema` is refused, as in Rust,
so that this program never half-understands a file.
"""

# The newest `schema` number that this program understands.
SCHEMA = 1
