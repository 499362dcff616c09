"""Figures for the end of the output: other machines have others, so that no test asserts them."""

FIGURES: list[str] = []
