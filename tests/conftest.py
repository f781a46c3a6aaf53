"""Makes the helpers in tests/support importable from every test folder."""

import signal
import sys
from pathlib import Path


sys.path.append(str(Path(__file__).parents[1]))

# A shell starts jobs in the background with SIGINT ignored, and programs under test inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
