"""stats.py: what an engine has counted, and how far its steps are."""

from __future__ import annotations

import dataclasses

from . import abi
from .native import library


@dataclasses.dataclass(frozen=True)
class Histogram:
    """Times in ns, of each step."""

    count: int
    sum: int
    least: int
    most: int
    bins: tuple[int, ...] = dataclasses.field(repr=False)

    @classmethod
    def of_c(cls, made: abi.fig_histogram) -> Histogram:
        """From what the library has."""
        return cls(made.count, made.sum, made.least, made.most, tuple(made.bins))

    def percentile(self, percent: float) -> int:
        """The time that so many percent of all do not exceed, to an eighth; 0 where none is."""
        made = abi.fig_histogram(self.count, self.sum, self.least, self.most)
        made.bins[:] = self.bins
        return library.fig_histogram_percentile(made, percent)


@dataclasses.dataclass(frozen=True)
class Stats:
    """What an engine has counted since it was opened; figraph.h says what each number is."""

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

    @classmethod
    def of_c(cls, made: abi.fig_engine_stats) -> Stats:
        """From what the library has."""
        values = {field.name: getattr(made, field.name) for field in dataclasses.fields(cls)}
        for name in ("host", "period"):
            values[name] = Histogram.of_c(values[name])
        return cls(**values)


@dataclasses.dataclass(frozen=True)
class Progress:
    """Launches asked for, made and ended, since open."""

    staged: int
    launched: int
    completed: int
