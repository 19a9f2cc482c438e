"""Recordings of NCCL's profiler events: record, read, convert, report, view. The format is docs/recording.md.

`model` holds what a recording says, in columns; `reader` makes it of files, which it does not trust; all else reads the
model.
"""

from __future__ import annotations
