"""The fdinfo of DRM files: as drivers write it, and in forms that are refused."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.plugin.usage.fdinfo import Client, EngineTime, MalformedFdinfo, parse_fdinfo
from tests.plugin.usage.processes import CARD0, MIB, PLAIN_FILE, xe

# As in Documentation/gpu/xe/xe-drm-usage-stats.rst.
XE = b"""\
pos:    0
flags:  0100002
mnt_id: 26
ino:    685
drm-driver:     xe
drm-client-id:  3
drm-pdev:       0000:03:00.0
drm-total-system:       0
drm-shared-system:      0
drm-active-system:      0
drm-resident-system:    0
drm-purgeable-system:   0
drm-total-gtt:  192 KiB
drm-shared-gtt: 0
drm-active-gtt: 0
drm-resident-gtt:       192 KiB
drm-total-vram0:        23992 KiB
drm-shared-vram0:       16 MiB
drm-active-vram0:       0
drm-resident-vram0:     23992 KiB
drm-total-stolen:       0
drm-shared-stolen:      0
drm-active-stolen:      0
drm-resident-stolen:    0
drm-cycles-rcs: 28257900
drm-total-cycles-rcs:   7655183225
drm-cycles-ccs: 0
drm-total-cycles-ccs:   7655183225
drm-engine-capacity-ccs:        4
"""

# As drm_print_memory_stats and show_client_class of i915 write it.
I915 = b"""\
pos:\t0
flags:\t02100002
mnt_id:\t26
ino:\t430
drm-driver:\ti915
drm-client-id:\t7
drm-pdev:\t0000:4d:00.0
drm-total-system0:\t45 MiB
drm-shared-system0:\t0
drm-active-system0:\t0
drm-resident-system0:\t45 MiB
drm-purgeable-system0:\t0
drm-total-local0:\t1025 MiB
drm-shared-local0:\t0
drm-active-local0:\t0
drm-resident-local0:\t1 GiB
drm-purgeable-local0:\t0
drm-total-stolen-local0:\t4 MiB
drm-resident-stolen-local0:\t4 MiB
drm-engine-render:\t9288864723 ns
drm-engine-copy:\t2035071108 ns
drm-engine-video:\t0 ns
drm-engine-capacity-video:\t2
drm-engine-video-enhance:\t0 ns
"""

AMDGPU = b"""\
pos:\t0
drm-driver:\tamdgpu
drm-client-id:\t12
drm-pdev:\t0000:0b:00.0
pasid:\t32771
drm-memory-vram:\t2048 KiB
drm-memory-gtt: \t64 KiB
drm-memory-cpu: \t0 KiB
amd-memory-visible-vram:\t2048 KiB
drm-engine-gfx:\t5 ns
drm-engine-compute:\t0 ns
"""


@pytest.mark.parametrize(
    ("content", "client"),
    [
        pytest.param(
            XE,
            Client(
                "0000:03:00.0",
                3,
                23992 * 1024,
                {"rcs": EngineTime(28257900, 7655183225), "ccs": EngineTime(0, 7655183225, 4)},
            ),
            id="xe",
        ),
        pytest.param(
            I915,
            Client(
                "0000:4d:00.0",
                7,
                2**30,
                {
                    "render": EngineTime(9288864723),
                    "copy": EngineTime(2035071108),
                    "video": EngineTime(0, capacity=2),
                    "video-enhance": EngineTime(0),
                },
            ),
            id="i915",
        ),
        pytest.param(
            AMDGPU,
            Client("0000:0b:00.0", 12, 2 * MIB, {"gfx": EngineTime(5), "compute": EngineTime(0)}),
            id="amdgpu-has-the-older-name-of-resident-memory",
        ),
        pytest.param(
            AMDGPU + b"drm-resident-vram:\t1 MiB\n",
            Client("0000:0b:00.0", 12, MIB, {"gfx": EngineTime(5), "compute": EngineTime(0)}),
            id="a-driver-that-states-both-names-is-counted-once",
        ),
        pytest.param(
            XE.replace(b"drm-driver", b"drm-resident-vram1: 4096\ndrm-driver").replace(b"23992 KiB", b"1 KiB"),
            Client(
                "0000:03:00.0",
                3,
                4096 + 1024,
                {"rcs": EngineTime(28257900, 7655183225), "ccs": EngineTime(0, 7655183225, 4)},
            ),
            id="the-memory-of-all-tiles-without-unit-in-bytes",
        ),
        pytest.param(
            b"drm-driver: msm\ndrm-client-id: 1\ndrm-pdev: 0000:03:00.0\ndrm-cycles-gpu: 5\ndrm-maxfreq-gpu: 8 Hz\n",
            Client("0000:03:00.0", 1),
            id="cycles-without-a-total-state-no-share",
        ),
    ],
)
def test_what_drivers_write(content: bytes, client: Client) -> None:
    assert parse_fdinfo(content) == client


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(PLAIN_FILE.encode(), id="a-plain-file"),
        pytest.param(b"pos:\t0\neventfd-count: drm-driver: xe\n", id="a-file-that-only-mentions-it"),
        pytest.param(XE.replace(b"drm-pdev:", b"drm-x:"), id="a-card-without-PCI-address"),
        pytest.param(XE.replace(b"drm-client-id:", b"drm-x:"), id="a-driver-that-does-not-identify-clients"),
    ],
)
def test_files_that_are_no_client(content: bytes) -> None:
    assert parse_fdinfo(content) is None


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        pytest.param(XE[:-3], "fdinfo is cut off in the middle of a line", id="cut-off"),
        pytest.param(
            XE.replace(b"23992 KiB", b"-23992 KiB"),
            "'drm-resident-vram0': expected a whole number of at most 19 digits, found '-23992'",
            id="negative",
        ),
        pytest.param(
            XE.replace(b"23992 KiB", b"23992 TiB"),
            "'drm-resident-vram0': expected bytes, KiB or MiB, found '23992 TiB'",
            id="another-unit",
        ),
        pytest.param(
            XE.replace(b"23992 KiB", b"9" * 19),
            "'drm-resident-vram0': expected at most 1125899906842624 bytes, found '9999999999999999999'",
            id="more-than-any-card-has",
        ),
        pytest.param(
            XE.replace(b"28257900", b"\xff\x00"),
            "'drm-cycles-rcs': expected a whole number of at most 19 digits, found '�\\x00'",
            id="binary",
        ),
        pytest.param(XE + b"drm-client-id: 4\n", "fdinfo states 'drm-client-id' twice", id="two-identities"),
        pytest.param(
            XE.replace(b"0000:03:00.0", b"../../etc"),
            "drm-pdev: expected a PCI address such as 0000:03:00.0, found '../../etc'",
            id="an-address-that-is-a-path",
        ),
        pytest.param(
            XE.replace(b"capacity-ccs:        4", b"capacity-ccs: 0"),
            "'drm-engine-capacity-ccs': expected 1 to 1000 engines, found 0",
            id="no-engine",
        ),
        pytest.param(
            I915.replace(b"9288864723 ns", b"9288864723"),
            "'drm-engine-render': expected nanoseconds such as 5 ns, found '9288864723'",
            id="time-without-unit",
        ),
        pytest.param(
            XE.replace(b"cycles-rcs", b'cycles-"}'), "fdinfo names an engine '\"}'", id="a-name-that-is-not-a-label"
        ),
    ],
)
def test_invalid_content_is_refused_with_one_sentence(content: bytes, sentence: str) -> None:
    with pytest.raises(MalformedFdinfo) as raised:
        parse_fdinfo(content)
    assert str(raised.value) == sentence


lines = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(XE.splitlines() + I915.splitlines()),
    st.builds(
        lambda key, value: key + b": " + value,
        st.sampled_from([b"drm-resident-vram0", b"drm-pdev", b"drm-client-id", b"drm-engine-rcs", b"drm-cycles-rcs"]),
        st.one_of(st.binary(max_size=24), st.integers().map(lambda number: str(number).encode())),
    ),
)


@given(st.lists(lines), st.booleans())
def test_whatever_a_file_contains_no_number_is_negative_and_nothing_else_is_raised(
    content: list[bytes], is_whole: bool
) -> None:
    text = b"drm-driver: xe\n" + b"\n".join(content) + (b"\n" if is_whole else b"")
    client: Client | None = None
    with suppress(MalformedFdinfo):
        client = parse_fdinfo(text)
    if client is not None:
        assert client.memory >= 0
        assert client.id >= 0
        assert all(time.busy >= 0 and time.capacity >= 1 for time in client.engines.values())


@given(cut=st.integers(1, len(xe(vram=512)) - 1))
def test_a_truncated_file_is_never_a_smaller_number(cut: int) -> None:
    """Cut anywhere: either a sentence, or the numbers of the lines that are whole."""
    try:
        client = parse_fdinfo(xe(vram=512).encode()[:cut])
    except MalformedFdinfo:
        return
    assert client is None or (client.pci_address == CARD0 and client.memory in (0, 512 * MIB))
