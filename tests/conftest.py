"""Makes the helpers in tests/support importable from every test folder."""

import sys
from pathlib import Path


sys.path.append(str(Path(__file__).parents[1]))
