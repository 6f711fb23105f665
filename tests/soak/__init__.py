"""Mixed load with faults on a real fleet; says what was lost, truncated, wrong or leaked."""
