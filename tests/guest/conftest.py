"""The guest, and its tests at the end of the queue."""

from pathlib import Path

import pytest

from tests.support.guest import Guest, prepare_guest
from tests.support.guest_image import GuestUnavailableError
from tests.support.watchers import prepare_watcher_guest


HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before -m deselects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, and run them after the fast ones."""
    slow = [item for item in items if item.path.is_relative_to(HERE)]
    for item in slow:
        item.add_marker(pytest.mark.guest)
    items[:] = [item for item in items if item not in slow] + slow


@pytest.fixture(scope="session")
def guest() -> Guest:
    """Return the machine, built on first use."""
    try:
        return prepare_guest()
    except GuestUnavailableError as error:
        pytest.skip(f"no guest: {error}")


@pytest.fixture(scope="session")
def watcher_guest() -> Guest:
    """Return a machine in which watch-oom runs."""
    try:
        return prepare_watcher_guest()
    except GuestUnavailableError as error:
        pytest.skip(f"no guest: {error}")
