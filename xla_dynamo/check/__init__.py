"""What a script that was written for torch_xla will find here; the script is read, not run."""
