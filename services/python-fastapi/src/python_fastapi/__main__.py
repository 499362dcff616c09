"""The entry point of `python -m python_fastapi`."""

from python_fastapi.main import main

main()
