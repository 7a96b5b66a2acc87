"""Flags and environment: NVIDIA's names, precedence, and errors."""

from pathlib import Path

import pytest

from vdev import cli, config
from vdev.agent.options import Options
from vdev.cli import options
from vdev.errors import ConfigError, UsageError


def chosen(*arguments: str, **environ: str) -> Options:
    """The options of `vdev run` with these arguments and variables."""
    return options.read(cli.parsed(["run", *arguments]), environ)


def given(*arguments: str, **environ: str) -> dict[str, tuple[object, str]]:
    """The values that override the file, with their sources."""
    return {key: (each.value, each.source) for key, each in chosen(*arguments, **environ).overrides.items()}


KEYS = [
    ("--mig-strategy", "MIG_STRATEGY", "mixed", "flags.migStrategy", "mixed"),
    ("--fail-on-init-error", "FAIL_ON_INIT_ERROR", "false", "flags.failOnInitError", False),
    ("--driver-root", "NVIDIA_DRIVER_ROOT", "/drv", "flags.nvidiaDriverRoot", "/drv"),
    ("--dev-root", "NVIDIA_DEV_ROOT", "/dev2", "flags.nvidiaDevRoot", "/dev2"),
    ("--mps-root", "MPS_ROOT", "/mps", "flags.mpsRoot", "/mps"),
    ("--pass-device-specs", "PASS_DEVICE_SPECS", "1", "flags.plugin.passDeviceSpecs", True),
    (
        "--device-list-strategy",
        "DEVICE_LIST_STRATEGY",
        "envvar,cdi-cri",
        "flags.plugin.deviceListStrategy",
        ("envvar", "cdi-cri"),
    ),
    ("--device-id-strategy", "DEVICE_ID_STRATEGY", "index", "flags.plugin.deviceIDStrategy", "index"),
    ("--cdi-annotation-prefix", "CDI_ANNOTATION_PREFIX", "x.y/", "flags.plugin.cdiAnnotationPrefix", "x.y/"),
    (
        "--shared-devices-allocation-policy",
        "SHARED_DEVICES_ALLOCATION_POLICY",
        "packed",
        "flags.plugin.sharedDevicesAllocationPolicy",
        "packed",
    ),
    ("--imex-channel-ids", "IMEX_CHANNEL_IDS", "0", "imex.channelIDs", ("0",)),
    ("--imex-required", "IMEX_REQUIRED", "true", "imex.required", True),
]


@pytest.mark.parametrize(("flag", "variable", "text", "key", "value"), KEYS, ids=[row[0] for row in KEYS])
def test_flags_and_variables_override_the_file(flag: str, variable: str, text: str, key: str, value: object) -> None:
    """A flag also overrides the variable."""
    assert {key: (value, f"flag {flag}")} == given(f"{flag}={text}")
    assert {key: (value, f"env {variable}")} == given(**{variable: text})
    assert f"flag {flag}" == chosen(f"{flag}={text}", **{variable: text}).overrides[key].source
    loaded = config.load_text("version: v1", overrides=chosen(f"{flag}={text}").overrides)
    assert f"flag {flag}" in {origin.source for origin in loaded.origins()}


def test_aliases_and_forms_of_flags(subtests):
    cases = [
        (["--nvidia-driver-root", "/x"], "flags.nvidiaDriverRoot", "/x"),
        (["--nvidia-dev-root=/x"], "flags.nvidiaDevRoot", "/x"),
        (["--pass-device-specs"], "flags.plugin.passDeviceSpecs", True),
        (["-nvidia-driver-root", "/x"], "flags.nvidiaDriverRoot", "/x"),
        (["-driver-root=/x"], "flags.nvidiaDriverRoot", "/x"),
        (["-pass-device-specs"], "flags.plugin.passDeviceSpecs", True),
        (["-pass-device-specs=F"], "flags.plugin.passDeviceSpecs", False),
        (["--gds-enabled"], "flags.gdsEnabled", True),
        (["--pass-device-specs=F"], "flags.plugin.passDeviceSpecs", False),
        (["--pass-device-specs", "false"], "flags.plugin.passDeviceSpecs", False),
        (["-pass-device-specs", "False", "--gds-enabled"], "flags.plugin.passDeviceSpecs", False),
        (["--pass-device-specs", "TRUE"], "flags.plugin.passDeviceSpecs", True),
        (["--mps-root="], "flags.mpsRoot", ""),
        (
            ["--device-list-strategy", "envvar", "--device-list-strategy=cdi-cri"],
            "flags.plugin.deviceListStrategy",
            ("envvar", "cdi-cri"),
        ),
    ]
    for arguments, key, value in cases:
        with subtests.test(arguments=arguments):
            assert value == chosen(*arguments).overrides[key].value


def test_a_wrong_value_names_the_flag_or_the_variable(subtests):
    cases = [
        (
            ["--mig-strategy=mix"],
            {},
            "flag --mig-strategy: flags.migStrategy: the string 'mix' is not allowed here; did you mean 'mixed'?",
        ),
        ([], {"MIG_STRATEGY": "both"}, "env MIG_STRATEGY: flags.migStrategy: the string 'both' is not allowed"),
        (["--pass-device-specs=yes"], {}, "flags.plugin.passDeviceSpecs: expected true or false, got the string 'yes'"),
        (["--no-state=yes"], {}, "flag --no-state: 'yes' is not a boolean; expected true or false"),
        ([], {"DEVICE_LIST_STRATEGY": "envvar,cdi"}, "flags.plugin.deviceListStrategy: the string 'cdi'"),
        (["--log-level=loud"], {}, "flag --log-level: 'loud'"),
        (
            ["--boot-wait=soon"],
            {},
            "flag --boot-wait: expected a duration, got the string 'soon'; such as 200ms, 5s, 1m30s",
        ),
        (
            [],
            {"VDEV_BOOT_WAIT": "-1"},
            "env VDEV_BOOT_WAIT: expected a duration, got the number -1; such as 200ms, 5s, 1m30s",
        ),
        (["--boot-wait=inf"], {}, "flag --boot-wait: expected a duration"),
        (["--http-address=8080"], {}, "flag --http-address: '8080' is not an address"),
        (["--http-address=host:99999"], {}, "is not an address"),
        (["--http-address=ü..b:8080"], {}, "flag --http-address: 'ü..b:8080' is not an address"),
        (["--config-file="], {}, "flag --config-file: an empty path"),
    ]
    for arguments, environ, words in cases:
        with subtests.test(arguments=arguments):
            with pytest.raises((UsageError, ConfigError)) as caught:
                config.load_text("version: v1", overrides=chosen(*arguments, **environ).overrides)
            assert words in str(caught.value)


@pytest.mark.parametrize(("text", "seconds"), [("30", 30), ("0", 0), ("1.5", 1.5), ("30s", 30), ("1m30s", 90)])
def test_a_wait_is_a_number_of_seconds_or_a_duration(text: str, seconds: float) -> None:
    assert seconds == chosen(f"--boot-wait={text}").boot_wait == chosen(VDEV_BOOT_WAIT=text).boot_wait


def test_a_boolean_takes_only_true_and_false() -> None:
    """Any other argument may be a file or the index of a device."""
    found = cli.parsed(["allocate", "f.yaml", "--resource", "a/b", "--pass-device-specs", "0", "1"])
    assert ([Path("f.yaml"), Path("0"), Path("1")], "true") == (found.files, found.pass_device_specs)
    assert [Path("false.yaml")] == cli.parsed(["plan", "--pass-device-specs", "false.yaml"]).files
    assert [Path("false")] == cli.parsed(["plan", "--pass-device-specs", "--", "false"]).files


def test_files_with_faults_need_permission() -> None:
    with pytest.raises(UsageError, match="--fault-dir needs --enable-fault-injection"):
        chosen("--fault-dir=/f")
    assert Path("/f") == chosen("--fault-dir=/f", "--enable-fault-injection").fault_dir


def test_an_empty_variable_counts_as_not_set() -> None:
    """DaemonSets set empty variables. An empty flag is the same."""
    assert {} == chosen(MIG_STRATEGY="", PASS_DEVICE_SPECS="").overrides
    assert (Path("a"),) == chosen(CONFIG_FILE="", VDEV_CONFIG_FILE="a").config_files
    assert chosen() == chosen(
        "--cdi-dir=", "--run-dir=", "--state-dir=", "--fault-dir=", "--log-level=", "--node-name="
    )


def test_the_default_node_name_is_that_of_the_host() -> None:
    assert ("", True) == (chosen().named_node, bool(chosen().node_name))
    assert ("n", "n") == (chosen("--node=n").named_node, chosen(NODE_NAME="n").named_node)


def test_config_files_are_repeated_or_listed() -> None:
    assert (Path("a"), Path("b")) == chosen("--config-file", "a", "--config-file=b").config_files
    assert (Path("a"), Path("b"), Path("c")) == chosen(CONFIG_FILE="a,b:c").config_files
    assert (Path("a"),) == chosen(VDEV_CONFIG_FILE="a").config_files


def test_http_hosts() -> None:
    names = ("a.example", "*.b.example", "c")
    assert names == chosen("--http-hosts=a.example,*.b.example", "--http-hosts", "c").http_hosts
    assert ("a.example",) == chosen(VDEV_HTTP_HOSTS="a.example").http_hosts
    for wrong in ("http://a.example", "a.example:8080", "a..example", "a b", ","):
        with pytest.raises(UsageError, match="is not a host name"):
            chosen("--http-hosts", wrong)


def test_the_kubelets_socket_is_below_its_directory() -> None:
    """It is below --kubelet-dir unless it is given. An empty value means no registration."""
    assert Path("/k/device-plugins/kubelet.sock") == chosen("--kubelet-dir=/k").registration_socket
    assert Path("/s") == chosen(KUBELET_SOCKET="/s").registration_socket
    assert chosen(KUBELET_SOCKET="").registration_socket is None
