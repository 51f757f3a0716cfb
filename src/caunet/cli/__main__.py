"""``python -m caunet.cli``, which ``torchrun -m caunet.cli train ...`` needs."""

import sys

from caunet.cli import main

if __name__ == "__main__":
    sys.exit(main())
