"""Playing: exact episodes from compiled copies, worker processes or batched environments; greedy episodes and GIFs."""
