"""The search: how candidates are proposed, evaluated and kept, one ask-evaluate-tell loop."""
