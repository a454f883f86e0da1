"""`python -m kinfolk` is the command `kinfolk`."""

from __future__ import annotations

from kinfolk.cli.main import main

if __name__ == "__main__":
    main()
