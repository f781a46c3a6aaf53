"""The exit statuses of every command."""

from __future__ import annotations


__all__ = ["BROKEN_PIPE", "INTERRUPTED", "NO", "NO_ANSWER", "USAGE", "YES"]

YES = 0
NO = 1
USAGE = 2
NO_ANSWER = 3
INTERRUPTED = 130
BROKEN_PIPE = 141
