"""memqos: what kubelet and the kernel will do with memory, decided from plain data.

The library is pure: every module outside :mod:`memqos.adapters` takes text or values and returns
frozen values. Import the module that is named after the thing you need::

    from memqos.memory_manager.validation import validate_start
    from memqos.quantity import parse_quantity
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
