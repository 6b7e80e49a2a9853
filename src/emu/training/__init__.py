"""Training: the loop, the memory inside it, progress on the console, and snapshots of the memory."""
