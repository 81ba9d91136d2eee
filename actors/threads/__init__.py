"""Sessions as the thread door shows them: stored events folded into turns and items. Pure; no I/O, no clock."""
