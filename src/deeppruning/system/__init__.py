"""The machine underneath: files, devices, threads, memory, shell commands and the user's own code."""
