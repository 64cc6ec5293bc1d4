# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`python -m samara WORDS` is `samara WORDS`, and so is the command `samara` that pip installs."""

import os
import sys

from samara.program import NO_INPUT, SCRIPT_FOLDER, Error, environment, find_program


def main() -> None:
    """Replaces this process by the program; exits where there is none."""
    try:
        program = str(find_program())
        variables = environment()
        variables.pop(SCRIPT_FOLDER, None)  # that of this command
        os.execve(program, [program, *sys.argv[1:]], variables)
    except Error as error:
        print(f"samara: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        print(f"samara: {program}: {error.strerror}", file=sys.stderr)
        sys.exit(NO_INPUT)


if __name__ == "__main__":
    main()
