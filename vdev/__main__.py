"""`python -m vdev` is the `vdev` command."""

from .cli import main

if __name__ == "__main__":
    raise SystemExit(main())
