"""The proof that a cut equals masking: masked runs, trials, comparison, and remedies where it fails."""
