"""Trackers: TensorBoard, MLflow, Weights & Biases or one of your own, which record a run as it goes."""

from deeppruning.tracking.tracker import TRACKERS, TrackedRun, Tracker, register_tracker
from deeppruning.tracking.tracking import Track, Tracking

__all__ = ["TRACKERS", "Track", "TrackedRun", "Tracker", "Tracking", "register_tracker"]
