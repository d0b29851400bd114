"""``gas-plugin`` as it is in a pod: it logs in with a service account, whose files lie elsewhere here.

Run as ``python -m benchmarks.plugin_pod DIRECTORY FLAG…`` with the variables that Kubernetes gives to pods.
"""

import sys
from functools import partial
from pathlib import Path

from gas.cluster import connection
from gas.cluster.credentials import find_credentials
from gas.plugin.__main__ import main

if __name__ == "__main__":
    directory = Path(sys.argv.pop(1))
    in_a_pod = partial(find_credentials, token_file=str(directory / "token"), ca_file=str(directory / "ca.crt"))
    connection.find_credentials = in_a_pod  # type: ignore[attr-defined]  # no part of its face
    sys.exit(main())
