"""From a pending trace to results: dispatch, FX graph, compiled program, CPU fallback."""
