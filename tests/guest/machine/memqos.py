#!/usr/bin/python3
"""The `memqos` of the guest."""

from memqos_cli.__main__ import main


if __name__ == "__main__":
    main()
