"""`stretto top`: the collectives of a running job, as `htop` shows processes. `watcher` finds the job and reads its
flight recorders, `table` makes rows of that, `screen` lines of text, `terminal` a display that refreshes. On several
hosts a `member` on each does the watcher's work, `hosts` asks them, and `merge` makes one job of what they say.
"""
