"""What the rivals of `samara bench time-to-score` have in common: their arguments, when they are evaluated, what they print.

    python time_to_score_NAME.py TASK SCORE SEED CORES SECONDS

Where 5 training episodes more are over and the mean return of the last 5 reaches SCORE, 20 fresh episodes are played, as samara does,
here with the most probable action; their mean decides. A rival gives up after SECONDS (inf: never), or at the end of the training that
its authors publish. Its last line is {"rival", "seconds", "frames", "mean", "curve"}, or {"reason"} where it is not installed. seconds,
frames and mean are null where the score was not reached. curve: some 200 points [seconds, frames, mean of the last 5 training episodes].
"""

import json
import os
import sys
import tempfile
import time
from collections import deque
from pathlib import Path

EPISODES, TRAINING_EPISODES = 20, 5
POINTS = 200  # of a curve


class Task:
    """The command line: name, score, seed, cores, seconds."""

    def __init__(self, environment):
        """Goes on in the Python of `environment`, a folder next to .venv, where that exists, and in a folder of its own."""
        _, self.name, score, seed, cores, seconds = sys.argv
        self.score, self.seed, self.cores, self.seconds = float(score), int(seed), int(cores), float(seconds)
        python = Path(sys.prefix).parent / environment / "bin" / "python"
        if python.exists() and Path(sys.prefix).name != environment:
            os.execv(python, [str(python), *sys.argv])
        self._folder = tempfile.TemporaryDirectory()  # rivals and simulators write logs where they are
        os.chdir(self._folder.name)


class UntilScore:
    """Whether a training is over: it reached the score, or its time is up."""

    def __init__(self, task, play):
        """play(episodes): mean return of fresh episodes, with the most probable actions. The time counts from here."""
        self._task, self._play = task, play
        self._started = time.perf_counter()
        self._returns, self._episodes, self._curve = deque(maxlen=TRAINING_EPISODES), 0, []
        self._reached = None

    def over(self, frames, returns=()):
        """Counts the returns of training episodes that ended; frames: those so far. Evaluates where it is time to, until it is over."""
        if self._over():
            return True
        before = self._episodes
        self._returns.extend(returns)
        self._episodes += len(returns)
        if self._episodes // TRAINING_EPISODES > before // TRAINING_EPISODES:
            mean = float(sum(self._returns) / len(self._returns))
            self._curve.append([round(self._seconds(), 2), int(frames), mean])
            if mean >= self._task.score:
                self._evaluate(frames)
        return self._over()

    def say(self, rival):
        """Prints the result of `rival`, its name with version and settings."""
        seconds, frames, mean = self._reached or (None, None, None)
        curve = self._curve[-1::-(len(self._curve) // POINTS + 1)][::-1]  # always with the last
        print(json.dumps({"rival": rival, "seconds": seconds, "frames": frames, "mean": mean, "curve": curve}), flush=True)

    def _over(self):
        return self._reached is not None or self._seconds() >= self._task.seconds

    def _evaluate(self, frames):
        mean = float(self._play(EPISODES))
        if mean >= self._task.score:
            self._reached = (self._seconds(), int(frames), mean)

    def _seconds(self):
        return time.perf_counter() - self._started


def missing(error):
    """Prints that the rival cannot run here."""
    print(json.dumps({"reason": f"{error}: `make rivals` installs what is missing"}))
