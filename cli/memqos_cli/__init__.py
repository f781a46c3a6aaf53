"""The memqos command line: it reads through adapters, asks the library, and renders."""

import gc


# Imports make many objects and no garbage: collecting meanwhile is a tenth of a cold start.
gc.set_threshold(100_000, 50, 50)
