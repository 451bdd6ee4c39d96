"""`python -m prefillwatch.observer`: started by the supervisor."""

import sys

from prefillwatch.observer.process import main

sys.exit(main())
