"""What runs recorded: `recorder` writes it with each commit, `frames` and `tally` tell of it, in any process.

Import from the modules: the sink's process needs the recorder, and should not pay for pandas.
"""
