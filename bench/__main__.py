"""`python -m bench NAME`."""

from __future__ import annotations

import sys
from importlib import import_module

NAMES = ("start", "embed", "finetune", "memory", "pretrain", "recurrent", "translate")


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1] not in NAMES:
        sys.exit(f"usage: scripts/bench NAME, where NAME is one of {', '.join(NAMES)}")
    import_module(f"bench.{sys.argv[1]}").main()


if __name__ == "__main__":
    main()
