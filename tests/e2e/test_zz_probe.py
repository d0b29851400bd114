import time, threading, sys
sys.path.insert(0, "/work/main")
from tests.e2e import test_api_server_away as t, waiting
T0=time.monotonic()
orig=waiting.wait_for
def wf(what, q, **k):
    a=time.monotonic()
    def q2():
        r=q()
        if what.startswith("every pod") or what.startswith("the mixed"):
            api=wf.api
            un=[p["metadata"]["name"] for p in api.items(t.PODS, fieldSelector="spec.nodeName=")]
            live=t.live_holders(api)
            print(f"{time.monotonic()-T0:.1f} unbound {len(un)} {un[:6]} live {len(live)}", file=sys.stderr)
        return r
    try: return orig(what,q2,**{**k, **({"every":1} if "every pod" in what or "mixed" in what else {})})
    finally: print(f"{time.monotonic()-T0:.1f} {what} took {time.monotonic()-a:.1f}", file=sys.stderr)
t.wait_for=wf
def test_probe(cluster):
    wf.api=cluster.api
    t.test_no_booking_is_lost_or_invented_while_the_api_server_is_away(cluster)
    print("SCHED", *[l for l in cluster.scheduler.program.log_text().splitlines() if "reflector" in l or "refused" in l][-30:], sep="\n", file=sys.stderr)
    import re
    print("GAS", *[l[:200] for l in cluster._extenders[0].program.log_text().splitlines() if "bound pod" not in l][-40:], sep="\n", file=sys.stderr)
    print("BOUND", *[l[11:23] for l in cluster._extenders[0].program.log_text().splitlines() if "bound pod" in l], file=sys.stderr)
    print(time.strftime("%H:%M:%S"), time.monotonic()-T0, file=sys.stderr)
