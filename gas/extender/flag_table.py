"""Every flag of ``gas-extender`` with its default and its line of help."""

from __future__ import annotations

from pathlib import Path

from gas.daemon import flag_values
from gas.daemon.go_flags import GoFlag, boolean

FLAG_GROUPS = {
    "Serving the scheduler (TLS)": (
        GoFlag("port", flag_values.port, 9001, "N", "port of filter and bind (9001)"),
        GoFlag("bind-address", flag_values.address, "", "IP", "where to listen (every address, IPv4 and IPv6)"),
        GoFlag(
            "cert",
            flag_values.file,
            Path("/gas/cert/tls.crt"),
            "FILE",
            "PEM certificate to serve with, its chain after it (/gas/cert/tls.crt)",
        ),
        GoFlag(
            "key",
            flag_values.file,
            Path("/gas/cert/tls.key"),
            "FILE",
            "PEM private key of --cert, not encrypted (/gas/cert/tls.key)",
        ),
        GoFlag(
            "cacert",
            flag_values.file,
            Path("/etc/kubernetes/pki/ca.crt"),
            "FILE",
            "PEM authorities that clients' certificates must come from (/etc/kubernetes/pki/ca.crt)",
        ),
        GoFlag(
            "allowed-names",
            flag_values.names,
            frozenset(),
            "NAME,…",
            "common names or DNS names of the clients that may call, since a cluster's authority signs every "
            "kubelet's certificate too (every client whose certificate can be verified)",
        ),
        GoFlag(
            "max-request-bytes",
            flag_values.positive,
            64 * 1024 * 1024,
            "N",
            "the largest request body that is read (67108864)",
        ),
        GoFlag(
            "shutdown-timeout",
            flag_values.duration,
            20.0,
            "TIME",
            "how long requests in hand may take to finish after SIGTERM (20s)",
        ),
    ),
    "Health, metrics and the books (plain HTTP)": (
        GoFlag(
            "metrics-port",
            flag_values.port,
            9002,
            "N",
            "port of /healthz, /readyz, /metrics and /debug (9002)",
        ),
        GoFlag("metrics-address", flag_values.address, "", "IP", "where to listen (every address, IPv4 and IPv6)"),
    ),
    "Choosing cards": (
        GoFlag("enableAllowlist", boolean, False, "", "obey the pod annotation gas-allow (false)"),
        GoFlag("enableDenylist", boolean, False, "", "obey the pod annotation gas-deny (false)"),
        GoFlag(
            "balancedResource",
            flag_values.text,
            "",
            "NAME",
            "take the cards first of which least of gpu.intel.com/NAME is in use (natural order)",
        ),
        GoFlag(
            "search-steps",
            flag_values.positive,
            None,
            "N",
            "most steps of one search for cards (a built-in limit)",
        ),
    ),
    "The API server": (
        GoFlag(
            "kubeConfig",
            flag_values.text,
            "",
            "FILE",
            "how to reach the cluster (the pod's service account, else $KUBECONFIG, else ~/.kube/config)",
        ),
        GoFlag(
            "qps",
            flag_values.rate,
            None,
            "N",
            "most requests a second, at most 1000 (no limit; 5 when only --burst is given)",
        ),
        GoFlag(
            "burst",
            flag_values.positive,
            None,
            "N",
            "most requests at once under --qps, at most 1000 (no limit; 10 when only --qps is given)",
        ),
        GoFlag(
            "leader-elect",
            boolean,
            False,
            "",
            "several replicas run, of which the holder of a Lease decides (false)",
        ),
        GoFlag(
            "lease-namespace",
            flag_values.object_name,
            "",
            "NAME",
            "namespace of the Lease ($POD_NAMESPACE, else the service account's, else default)",
        ),
        GoFlag("lease-name", flag_values.object_name, "", "NAME", "name of the Lease (gas-extender)"),
    ),
    "Logs and help": (
        GoFlag(
            "v",
            flag_values.whole,
            0,
            "N",
            "how much is logged: 0 what matters, 2 why pods wait, 4 every decision (0)",
        ),
        GoFlag("log-format", flag_values.log_format, "text", "FORMAT", "text or json (text)"),
        GoFlag("version", boolean, False, "", "print the version and exit"),
        GoFlag("help", boolean, False, "", "print this text and exit; also -h"),
    ),
}
