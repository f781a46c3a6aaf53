"""The classes of the Talos OOM handler, least important first."""

from __future__ import annotations

from enum import IntEnum


__all__ = ["OOMClass"]


class OOMClass(IntEnum):
    """Their values are those of the constants in expressions."""

    BESTEFFORT = 0
    BURSTABLE = 1
    GUARANTEED = 2
    PODRUNTIME = 3
    SYSTEM = 4

    @property
    def label(self) -> str:
        """The name as expressions spell it, such as ``Besteffort``."""
        return self.name.capitalize()
