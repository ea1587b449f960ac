"""What a user reads of a run: metrics reports, IR dumps, debugging messages."""
