"""The exceptions of memqos: one small tree, for input that cannot be understood.

A decision ("kubelet would refuse") is a value, never an exception.
"""

from __future__ import annotations


__all__ = ["InputError", "JSONSyntaxError", "MachineError", "MemqosError", "QuantityError"]


class MemqosError(Exception):
    """Base of everything that memqos raises on purpose."""


class InputError(MemqosError):
    """Data that cannot be understood.

    Attributes:
        message: what was found and what was expected.
        source: the file it came from, ``-`` for standard input, or None.
        document: 1-based number of the document in a stream, or None.
        line: 1-based line, or None.
        path: JSON path such as ``$.reservedMemory[0].numaNode``, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        source: str | None = None,
        document: int | None = None,
        line: int | None = None,
        path: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.source = source
        self.document = document
        self.line = line
        self.path = path

    def __str__(self) -> str:
        """Give one line: the place, then the message."""
        place = [
            self.source,
            None if self.document is None else f"document {self.document}",
            None if self.line is None else f"line {self.line}",
            self.path,
        ]
        return ": ".join([part for part in place if part] + [self.message])

    def locate(
        self, *, source: str | None = None, document: int | None = None, line: int | None = None
    ) -> InputError:
        """Fill in the parts of the place that are not known yet, and return the error itself."""
        self.source = self.source or source
        self.document = self.document or document
        self.line = self.line or line
        return self


class QuantityError(InputError):
    """Text that is not a ``resource.Quantity``."""


class JSONSyntaxError(InputError):
    """Text that Go's ``encoding/json`` refuses before it looks at any type."""


class MachineError(MemqosError):
    """A file of the machine that cannot be read or written; raised by adapters only.

    Attributes:
        path: the file.
        errno: the operating system's error number, or None.
    """

    def __init__(self, path: str, message: str, errno: int | None = None) -> None:
        super().__init__(f"{path or repr(path)}: {message}")
        self.path = path
        self.errno = errno
