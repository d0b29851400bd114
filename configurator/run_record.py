"""What a run keeps of the files that it changes: in case that it is cut short, and for ``--undo`` later.

The first lies in one place, in which every run looks whatever its ``-b``: the next one has to know of a run that died.
The second lies where ``-b`` says, as soon as everything is changed. Where both are the same directory it is one backup.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from configurator.backup import Backup, read_backup
from configurator.errors import ConfiguratorError
from configurator.files import Change


class RunRecord:
    """Of one run, before it changes anything. Raises ConfiguratorError when it cannot be written.

    place  where every run looks
    later  the directory of ``-b``; None: nothing is kept for later
    """

    def __init__(
        self, place: Path, later: Path | None, changes: Sequence[Change], directories: Sequence[Path], now: datetime
    ) -> None:
        self._now = now
        self._is_one = later == place
        self._kept: Backup | None = None
        self._under_way = Backup.write(place, changes, directories, now)
        if later is not None and not self._is_one:
            try:
                self._kept = Backup.prepare(later, changes, directories, complete=True)
            except BaseException:
                self.forget()
                raise

    @property
    def directory(self) -> Path:
        """What to name to an administrator while the run is under way."""
        return self._under_way.directory

    @property
    def kept(self) -> Path | None:
        """Where ``--undo`` finds it, when the run is complete."""
        if self._is_one:
            return self._under_way.directory
        return None if self._kept is None else self._kept.directory

    def finish(self) -> None:
        """Everything is changed. Raises ConfiguratorError or OSError; then the run is still under way."""
        if self._is_one:
            self._under_way.mark(complete=True)
            return
        if self._kept is not None:
            self._kept = self._kept.publish(self._now)
        self._under_way.remove()

    def forget(self) -> None:
        """Nothing is changed any more, unless the run had come to its end."""
        directory = self._under_way.directory
        if not directory.exists() or read_backup(directory).complete:
            return
        for backup in (self._kept, self._under_way):
            if backup is not None and backup.directory.exists():
                with contextlib.suppress(ConfiguratorError):  # the next run does, and finds nothing to take back
                    backup.remove()
