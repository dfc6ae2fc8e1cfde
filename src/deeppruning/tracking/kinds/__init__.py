"""Trackers, one class each; every file in this folder is imported automatically, their packages are not."""

ORDER = ("tensorboard", "mlflow", "wandb")
