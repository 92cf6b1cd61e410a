"""`python -m ryecore.cli`, where the `rye` script isn't on the PATH."""

from ryecore.cli import main

main()
