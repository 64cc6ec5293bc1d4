# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`python -m samara WORDS` is `samara WORDS`."""

import os
import sys

from samara.program import NO_INPUT, Error, environment, find_program

if __name__ == "__main__":
    try:
        program = str(find_program())
        os.execve(program, [program, *sys.argv[1:]], environment())
    except Error as error:
        print(f"samara: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        print(f"samara: {program}: {error.strerror}", file=sys.stderr)
        sys.exit(NO_INPUT)
