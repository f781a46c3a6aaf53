"""The only place that reads or writes the machine. Adapters return text or typed values."""
