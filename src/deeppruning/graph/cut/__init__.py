"""From a recipe in plain numbers to a thin network: slices, copies, wrappers and stand-ins."""
