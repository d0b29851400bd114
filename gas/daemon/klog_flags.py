"""Flags of klog, the logging library of Go programs, that have no meaning here; manifests with them still start."""

from __future__ import annotations

from collections.abc import Collection

from gas.daemon import flag_values
from gas.daemon.go_flags import GoFlag, boolean

KLOG_FLAGS = (
    *(
        GoFlag(name, boolean, None, "", "")
        for name in (
            "logtostderr",
            "alsologtostderr",
            "one_output",
            "add_dir_header",
            "skip_headers",
            "skip_log_headers",
        )
    ),
    *(
        GoFlag(name, flag_values.text, None, "VALUE", "")
        for name in (
            "stderrthreshold",
            "vmodule",
            "log_dir",
            "log_file",
            "log_file_max_size",
            "log_backtrace_at",
        )
    ),
)


def ignored_klog_flags(given: Collection[str]) -> list[str]:
    """The warning about those of them that were given, if any."""
    ignored = [f"--{flag.name}" for flag in KLOG_FLAGS if flag.name in given]
    return [f"ignored: {', '.join(ignored)}; logs go to stderr, see -v and --log-format"] if ignored else []
