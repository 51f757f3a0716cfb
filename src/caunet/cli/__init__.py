"""The command ``caunet``: subcommands, one file each, and one way to fail.

Exit codes: 0 done; 1 done, but not all of it; 2 wrong arguments, files or data (one line on stderr says what to do);
130 interrupted, 141 the reader of a pipe went away. ``CAUNET_TRACEBACK=1`` shows the traceback behind a message.
"""

import os
import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line ``argv`` (``sys.argv[1:]`` by default) and return its exit code."""
    # Everything heavy waits until it is needed: `caunet --help` answers without importing torch.
    from caunet.cli.parser import parse
    from caunet.errors import CaunetError

    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return parse(arguments).run()
    except (CaunetError, ValueError) as error:
        if os.environ.get("CAUNET_TRACEBACK"):
            raise
        if not _echo(error):
            print(f"caunet: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `caunet ... | head`: the reader has what it wanted
        # Python flushes stdout once more when it ends; there must be somewhere to flush to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:  # a directory that cannot be written, a full disk
        if os.environ.get("CAUNET_TRACEBACK"):
            raise
        print(f"caunet: {error.filename or 'files'}: {error.strerror or error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("caunet: interrupted", file=sys.stderr)
        return 130


def _echo(error: Exception) -> bool:
    """Whether another process of a data-parallel run reports the same: wrong arguments, or its own failure."""
    from caunet.errors import PeerError

    return os.environ.get("RANK", "0") != "0" and isinstance(error, ValueError | PeerError)
