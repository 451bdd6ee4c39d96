"""`python -m prefillwatch.observer`: started by the supervisor."""

import sys

from prefillwatch.observer.process import main
from prefillwatch.recorder.observer import observer_for

sys.exit(main(observer_for))
