"""The OOM policy: expressions, triggers, victims."""
