"""The machine below: files written whole, devices, threads, memory."""
