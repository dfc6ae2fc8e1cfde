"""That a cut equals silence: silenced runs, trials, comparison, and remedies where it does not hold yet."""
