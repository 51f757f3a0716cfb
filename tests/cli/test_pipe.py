"""`caunet ... | head` ends without a word when the reader has enough."""

import subprocess
import sys

TALKATIVE = """
import sys
import caunet.cli, caunet.cli.parser

class Talk:
    def run(self):
        for _ in range(100_000):
            print("a line")
        return 0

caunet.cli.parser.parse = lambda arguments: Talk()
sys.exit(caunet.cli.main([]))
"""


def test_a_closed_pipe_is_no_error() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", TALKATIVE], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == "a line\n"
    process.stdout.close()
    with process.stderr as said:
        assert said.read() == ""
    assert process.wait() == 141
