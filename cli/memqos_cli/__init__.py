"""The memqos command line: it reads through adapters, asks the library, and renders."""
