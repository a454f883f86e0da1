"""Speed and memory, measured beside the peers. Run through scripts/bench."""
