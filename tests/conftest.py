"""Each test process compiles into a folder of its own: two at once have been seen to load half-written libraries."""

import os
import tempfile
from pathlib import Path

_WORKER = os.environ.get("PYTEST_XDIST_WORKER", "main")
os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(
    Path(tempfile.gettempdir()) / f"caunet-tests-{os.getuid()}-{_WORKER}"
)
