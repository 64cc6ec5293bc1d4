# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The extension, and what all of this package shares."""

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
    """The group has failed. exit_code: 69 a rank died, froze or did not come; 70 ranks called different things, or
    diverged; 73 the ranks' port is another launch's; 78 a configuration that cannot work; 65, 66, 74 files."""

    __module__ = "samara.replica"  # as tracebacks name it

    def __init__(self, exit_code, message):
        super().__init__(message)
        self.exit_code = exit_code


# call sites are those outside these folders
extension.set_up(ReplicationError, [os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep,
                                    os.path.dirname(torch.__file__) + os.sep])
this_thread = threading.local()  # .replicator of a rank that is a thread, .context within a step
open_replicators = weakref.WeakSet()  # that from_environment made and nobody has shut down
