"""When the steady state of each service begins: the pilots of a bundle → the warm-up that its plan should have.

`seconds` (a trial → one value for each second) → `rule` (values → levels and steady state) → `pilots` (all pilots of a
bundle) → `printing`; `command` is the command line.
"""
