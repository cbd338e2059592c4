"""stats.py: the counts and times of an engine, and the progress of its steps."""

from __future__ import annotations

import dataclasses

from . import abi
from .native import library


@dataclasses.dataclass(frozen=True)
class Histogram:
    """A histogram of times in ns, one time per step."""

    count: int
    sum: int
    least: int
    most: int
    bins: tuple[int, ...] = dataclasses.field(repr=False)

    @classmethod
    def of_c(cls, made: abi.fig_histogram) -> Histogram:
        """Converts the struct of the C library."""
        return cls(made.count, made.sum, made.least, made.most, tuple(made.bins))

    def percentile(self, percent: float) -> int:
        """Returns the time that `percent` percent of all steps do not exceed, exact to an eighth; 0
        if the histogram is empty."""
        made = abi.fig_histogram(self.count, self.sum, self.least, self.most)
        made.bins[:] = self.bins
        return library.fig_histogram_percentile(made, percent)


@dataclasses.dataclass(frozen=True)
class Stats:
    """The counts of an engine since it was opened. figraph.h explains each number."""

    staged: int
    launched: int
    taken_back: int
    busy: int
    missed: int
    reused_splits: int
    uploaded_bytes: int
    page_bytes: int
    prepares: int
    patched_launches: int
    exec_count: int
    last_bucket: int
    workspace_bytes: int
    owned_bytes: int
    pinned_bytes: int
    exec_bytes: int
    host: Histogram = dataclasses.field(repr=False)
    period: Histogram = dataclasses.field(repr=False)
    shared_steps: int
    shared_groups: int
    shared_read: int
    shared_saved: int

    @classmethod
    def of_c(cls, made: abi.fig_engine_stats) -> Stats:
        """Converts the struct of the C library."""
        values = {field.name: getattr(made, field.name) for field in dataclasses.fields(cls)}
        for name in ("host", "period"):
            values[name] = Histogram.of_c(values[name])
        return cls(**values)


@dataclasses.dataclass(frozen=True)
class Progress:
    """The number of launches staged, launched and completed since the engine was opened."""

    staged: int
    launched: int
    completed: int
