"""Training and measuring networks on labelled images: loop, schedules, checkpoints, evaluation, devices."""
