"""`python -m prefillwatch.observer`: started by the supervisor."""

import sys

from prefillwatch.observer.process import main
from prefillwatch.recorder.recorder import recorder_for

sys.exit(main(recorder_for))
