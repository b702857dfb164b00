import sys

from anvil_tui.cli.main import main

sys.exit(main())
