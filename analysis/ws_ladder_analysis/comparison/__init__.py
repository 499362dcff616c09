"""Two builds, services or commits side by side, from finished bundles: refused where they can't be compared.

`sides` (which service of which bundle) → `refusals` (what differs besides) → `pairing` (which processes are pairs) →
`rows` (figure by figure) → `printing` (text, JSON); `command` is the command line.
"""
