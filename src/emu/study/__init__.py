"""Studies: planning many runs, analysing finished ones, drawing them, and the report."""
