# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The extension, and state that the modules of this package share."""

from __future__ import annotations

import os
import threading
import weakref

import torch

try:
    from samara import _replica as extension
except ImportError as error:
    raise ModuleNotFoundError(f"{error}: samara.replica needs its extension, built with torch (SAMARA_TORCH=ON, pip "
                              "install)") from error


class ReplicationError(RuntimeError):
    """A failure of the group. exit_code: 69 a rank died, froze or did not join; 70 ranks called different collectives, or
    diverged; 73 the ranks' port belongs to another launch; 78 a configuration that cannot work; 65, 66, 74 files."""

    __module__ = "samara.replica"  # as tracebacks name it

    def __init__(self, exit_code: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code


# call sites are those outside these folders
extension.set_up(ReplicationError, [os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep,
                                    os.path.dirname(torch.__file__) + os.sep])
this_thread = threading.local()  # .replicator of a rank that is a thread, .context within a step
open_replicators = weakref.WeakSet()  # made by from_environment and not shut down
