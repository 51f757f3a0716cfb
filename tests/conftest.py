"""Each test process compiles into a folder of its own: two at once have been seen to load half-written libraries."""

import os
import tempfile
from pathlib import Path

_WORKER = os.environ.get("PYTEST_XDIST_WORKER", "main")
os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(
    Path(tempfile.gettempdir()) / f"caunet-tests-{os.getuid()}-{_WORKER}"
)


def pytest_terminal_summary(terminalreporter):
    """A skip that says NOT TESTED is said aloud at the end, even where skips are only counted."""
    reasons = {str(report.longrepr[2]) for report in terminalreporter.getreports("skipped")}
    for reason in sorted(reason for reason in reasons if "NOT TESTED" in reason):
        terminalreporter.write_line(reason.removeprefix("Skipped: "), red=True, bold=True)
