"""Entry point."""

from __future__ import annotations

import sys


__all__ = ["main"]


def main() -> None:
    """Run memqos and exit."""
    try:
        # Inside, so that Ctrl-C is quiet while modules are loaded, too.
        from memqos_cli.run import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
