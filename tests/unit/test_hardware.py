"""What the process may use, read from fake ``/proc`` and ``/sys`` trees."""

import dataclasses
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import fastpipe.hardware as hw
from fastpipe.hardware import Gpu, Hardware, detect_hardware

GIB = 2**30
X86 = "processor\t: 0\nmodel name\t: Xeon 6\nflags\t\t: fpu avx2 {}\n\nprocessor\t: 1\nmodel name\t: Other\n"
ARM = "processor\t: 0\nFeatures\t: fp asimd {}\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n"
MEMINFO = "MemTotal:       16777216 kB\nMemFree:         1 kB\n"
SERVER = Hardware(
    architecture="x86_64",
    cpu_model="AMD EPYC",
    isa=("avx2", "avx512_bf16", "avx512_vnni"),
    cores=2,
    memory_bytes=int(23.4 * GIB),
    gpus=(),
)
H200 = Gpu(name="NVIDIA H200", memory_bytes=140 * GIB, compute_capability=(9, 0), index=0, kind="cuda")


@pytest.fixture
def detect(tmp_path, monkeypatch):
    """Detects on a tree given as {path: text}, with eight CPUs in the affinity mask and no torch."""
    monkeypatch.setitem(sys.modules, "torch", None)

    def run(files, cpus=8):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cpus)), raising=False)
        for path, text in files.items():
            target = tmp_path / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        return detect_hardware(tmp_path)

    return run


@pytest.mark.parametrize(
    ("flags", "isa", "int8", "bf16"),
    [
        ("sse2", ("avx2",), False, False),
        ("avx_vnni", ("avx2", "avx_vnni"), True, False),
        ("avx512f avx512_vnni", ("avx2", "avx512_vnni", "avx512f"), True, False),
        ("avx512_bf16 avx512_fp16", ("avx2", "avx512_bf16", "avx512_fp16"), False, True),
        ("amx_tile amx_int8", ("amx_int8", "amx_tile", "avx2"), True, False),
        ("amx_tile amx_bf16", ("amx_bf16", "amx_tile", "avx2"), False, True),
    ],
)
def test_x86_flags(detect, flags, isa, int8, bf16):
    found = detect({"proc/cpuinfo": X86.format(flags)})
    assert found.cpu_model == "Xeon 6"
    assert (found.isa, found.has_int8, found.has_bf16) == (isa, int8, bf16)
    assert found.has("avx2")
    assert not found.has("neon")


@pytest.mark.parametrize(
    ("features", "isa", "int8", "bf16"),
    [
        ("crc32", ("neon",), False, False),
        ("asimddp", ("dotprod", "neon"), True, False),
        ("i8mm", ("i8mm", "neon"), True, False),
        ("sve bf16", ("bf16", "neon", "sve"), False, True),
    ],
)
def test_arm_features_take_our_names(detect, features, isa, int8, bf16):
    found = detect({"proc/cpuinfo": ARM.format(features)})
    assert found.cpu_model == "ARM implementer 0x41 part 0xd40"
    assert (found.isa, found.has_int8, found.has_bf16) == (isa, int8, bf16)


def test_cgroup_v2_takes_the_smallest_limit_on_the_way_up(detect):
    found = detect(
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/outer/inner\n",
            "sys/fs/cgroup/cpu.max": "700000 100000\n",
            "sys/fs/cgroup/outer/cpu.max": "300000 100000\n",
            "sys/fs/cgroup/outer/memory.max": "max\n",
            "sys/fs/cgroup/outer/inner/cpu.max": "600000 100000\n",
            "sys/fs/cgroup/outer/inner/memory.max": f"{2 * GIB}\n",
            "sys/fs/cgroup/other/cpu.max": "100000 100000\n",  # somebody else's
            "sys/fs/cgroup/other/memory.max": f"{GIB}\n",
        }
    )
    assert (found.cores, found.memory_bytes) == (3, 2 * GIB)


def test_the_limit_of_the_root_cgroup_counts_in_a_container(detect):
    found = detect(
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/host/path/not/mounted/here\n",
            "sys/fs/cgroup/cpu.max": "200000 100000\n",
            "sys/fs/cgroup/memory.max": f"{3 * GIB}\n",
        }
    )
    assert (found.cores, found.memory_bytes) == (2, 3 * GIB)


def test_a_cgroup_outside_the_namespace_does_not_lead_out_of_the_mount(detect):
    found = detect(
        {
            "proc/self/cgroup": "0::/../other\n",
            "sys/fs/cgroup/cpu.max": "700000 100000\n",
            "sys/fs/other/cpu.max": "100000 100000\n",
        }
    )
    assert found.cores == 7


def test_max_means_no_limit(detect):
    found = detect(
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/cpu.max": "max 100000\n",
            "sys/fs/cgroup/memory.max": "max\n",
        }
    )
    assert (found.cores, found.memory_bytes) == (8, 16 * GIB)


@pytest.mark.parametrize(
    ("quota", "cores"), [("150000", 2), ("100000", 1), ("100001", 2), ("20000", 1), ("0", 8), ("900000", 8)]
)
def test_part_of_a_core_counts_as_one(detect, quota, cores):
    files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": f"{quota} 100000\n"}
    assert detect(files).cores == cores


def test_affinity_below_the_quota_binds(detect):
    files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "400000 100000\n"}
    assert detect(files, cpus=3).cores == 3
    assert detect(files, cpus=5).cores == 4


@pytest.mark.parametrize("folder", ["cpu", "cpu,cpuacct"])
def test_cgroup_v1(detect, folder):
    found = detect(
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "5:memory:/job\n4:cpu,cpuacct:/job\n1:name=systemd:/a:b\n0::/\n",
            f"sys/fs/cgroup/{folder}/cpu.cfs_quota_us": "-1\n",
            f"sys/fs/cgroup/{folder}/cpu.cfs_period_us": "100000\n",
            f"sys/fs/cgroup/{folder}/job/cpu.cfs_quota_us": "250000\n",
            f"sys/fs/cgroup/{folder}/job/cpu.cfs_period_us": "50000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",  # v1's "no limit"
            "sys/fs/cgroup/memory/job/memory.limit_in_bytes": f"{4 * GIB}\n",
        }
    )
    assert (found.cores, found.memory_bytes) == (5, 4 * GIB)


def test_a_v2_cgroup_named_like_a_v1_mount_is_not_ours(detect):
    found = detect(
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/job\n",
            "sys/fs/cgroup/memory/memory.max": f"{GIB}\n",
            "sys/fs/cgroup/cpu/cpu.max": "100000 100000\n",
        }
    )
    assert (found.cores, found.memory_bytes) == (8, 16 * GIB)


def test_missing_and_damaged_files_mean_no_limit(detect):
    empty = detect({})
    assert (empty.cores, empty.memory_bytes, empty.isa, empty.cpu_model) == (8, 0, (), "unknown CPU")
    damaged = detect(
        {
            "proc/cpuinfo": "\x00garbage\n:::\n",
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "nonsense\n0::/job\n",
            "sys/fs/cgroup/cpu.max": "100000 0\n",
            "sys/fs/cgroup/job/cpu.max": "lots\n",
            "sys/fs/cgroup/job/memory.max/is/a/folder": "",
        }
    )
    assert (damaged.cores, damaged.memory_bytes, damaged.isa) == (8, 16 * GIB, ())


def test_macos_sysctl():
    text = (
        "hw.optional.floatingpoint: 1\nhw.optional.AdvSIMD: 1\nhw.optional.arm.FEAT_DotProd: 1\n"
        "hw.optional.arm.FEAT_I8MM: 1\nhw.optional.arm.FEAT_BF16: 0\nhw.memsize: 17179869184\n"
        "machdep.cpu.brand_string: Apple M1\n"
    )
    assert hw.parse_sysctl(text) == ("Apple M1", ("dotprod", "i8mm", "neon"), 16 * GIB)
    assert hw.parse_sysctl("hw.optional.avx2_0: 1\nhw.optional.avx512f: 1\n")[1] == ("avx2", "avx512f")
    assert hw.parse_sysctl("") == ("unknown CPU", (), 0)


@pytest.mark.parametrize(("machine", "expected"), [("AMD64", "x86_64"), ("arm64", "aarch64"), ("riscv64", "riscv64")])
def test_one_name_for_an_architecture(detect, monkeypatch, machine, expected):
    monkeypatch.setattr(hw.platform, "machine", lambda: machine)
    assert detect({}).architecture == expected


def fake_torch(*, cuda=(), xpu=(), mps=False, hip=None):
    def module(devices):
        return SimpleNamespace(
            is_available=lambda: bool(devices),
            device_count=lambda: len(devices),
            get_device_properties=lambda index: devices[index],
        )

    return SimpleNamespace(
        cuda=module(cuda),
        xpu=module(xpu),
        version=SimpleNamespace(hip=hip),
        backends=SimpleNamespace(mps=SimpleNamespace(is_available=lambda: mps)),
    )


def device(name, memory_bytes, **version):
    return SimpleNamespace(name=name, total_memory=memory_bytes, **version)


def test_gpus_come_from_torch(detect, monkeypatch):
    second = dataclasses.replace(H200, index=1, name="L4", memory_bytes=24 * GIB, compute_capability=(8, 9))
    cuda = (device("NVIDIA H200", 140 * GIB, major=9, minor=0), device("L4", 24 * GIB, major=8, minor=9))
    monkeypatch.setitem(sys.modules, "torch", fake_torch(cuda=cuda))
    assert detect({}).gpus == (H200, second)

    monkeypatch.setitem(sys.modules, "torch", fake_torch(cuda=[device("MI300X", 9, major=9, minor=4)], hip="6.2"))
    assert [(gpu.kind, gpu.compute_capability) for gpu in detect({}).gpus] == [("cuda", None)]

    monkeypatch.setitem(sys.modules, "torch", fake_torch(xpu=[device("Arc", GIB)], mps=True))
    assert [(gpu.kind, gpu.name, gpu.memory_bytes) for gpu in detect({"proc/meminfo": MEMINFO}).gpus] == [
        ("xpu", "Arc", GIB),
        ("mps", "Apple GPU", 16 * GIB),
    ]


def test_a_broken_driver_costs_the_gpus_and_says_so(detect, monkeypatch, caplog):
    torch = fake_torch(cuda=[device("H200", 1, major=9, minor=0), device("gone", 1)])
    monkeypatch.setitem(sys.modules, "torch", torch)
    with caplog.at_level(logging.WARNING, logger="fastpipe"):
        assert detect({}).gpus == ()
    assert "AttributeError" in caplog.text


def test_a_broken_torch_is_said_aloud_too(tmp_path):
    # In a process of its own: a process that has torch cannot import another one.
    (tmp_path / "torch.py").write_text("raise ImportError('libtorch.so: cannot open shared object file')")
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(hw.__file__).parents[1])])}
    code = "import fastpipe.hardware; print(fastpipe.hardware.detect_hardware().gpus)"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "()"
    assert "libtorch.so" in done.stderr


def test_no_torch_is_no_gpu_and_no_warning(detect, caplog):
    assert detect({}).gpus == ()
    assert not caplog.records


def test_this_machine():
    found = detect_hardware()
    assert 1 <= found.cores <= (os.cpu_count() or 1)
    assert found.memory_bytes > 2**27
    assert found.isa == tuple(sorted(set(found.isa)))
    assert found.architecture
    assert found.cpu_model


def test_importing_the_module_imports_no_torch(tmp_path):
    # A stand-in, so that the test can fail where torch is not installed.
    (tmp_path / "torch.py").write_text("")
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(hw.__file__).parents[1])])}
    code = "import fastpipe.hardware, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_str_is_one_readable_line():
    assert str(SERVER) == "AMD EPYC, 2 cores, 23.4 GiB, avx2 avx512_bf16 avx512_vnni, no GPU"
    bare = dataclasses.replace(SERVER, cores=1, isa=(), gpus=(H200, H200))
    gpus = "NVIDIA H200 (140.0 GiB) + NVIDIA H200 (140.0 GiB)"
    assert str(bare) == f"AMD EPYC, 1 core, 23.4 GiB, plain x86_64, {gpus}"


def test_to_dict_survives_json():
    report = dataclasses.replace(SERVER, gpus=(H200,)).to_dict()
    assert json.loads(json.dumps(report)) == report
    assert report["isa"] == ["avx2", "avx512_bf16", "avx512_vnni"]
    assert report["gpus"][0]["compute_capability"] == [9, 0]
    assert report.keys() == {field.name for field in dataclasses.fields(Hardware)}
