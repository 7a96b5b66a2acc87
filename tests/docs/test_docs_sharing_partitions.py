"""The pages on sharing and partitions: each configuration is valid and gives the listed resources."""

import re
from pathlib import Path

import pytest

from tests.kit.previews import preview

ROOT = Path(__file__).parents[2]
PAIR = re.compile(r"```yaml\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)
PAGES = {page: (ROOT / f"docs/{page}.md").read_text() for page in ("sharing", "partitions")}
EXAMPLES = [
    pytest.param(text, shown, id=f"{page}-{number}")
    for page, whole in PAGES.items()
    for number, (text, shown) in enumerate(PAIR.findall(whole))
]


@pytest.mark.parametrize(("text", "shown"), EXAMPLES)
def test_examples(tmp_path, text, shown):
    """No problem, and exactly the listed resources and numbers."""
    file = tmp_path / "vdev.yaml"
    file.write_text(text)
    seen = preview([file], node="n", host_root=Path("/"))
    assert () == seen.problems
    assert shown.split("\n")[:-1] == [
        f"{name}: {len(resource.slots)}" for name, resource in seen.plan.devices.resources.items()
    ]


@pytest.mark.parametrize("page", PAGES)
def test_every_configuration_is_an_example(page):
    assert PAGES[page].count("```yaml") == len(PAIR.findall(PAGES[page]))


def test_the_page_quotes_the_error_about_a_clash(tmp_path):
    file = tmp_path / "vdev.yaml"
    file.write_text(
        "devices: [{name: a, resource: nvidia.com/gpu, virtual: {preset: a100-sxm4-40gb}, "
        'partitions: {"0": [3g.20gb, 3g.20gb, 1g.5gb]}}]'
    )
    messages = [problem.message for problem in preview([file], node="n", host_root=Path("/")).problems]
    assert any(f"`{message}`" in PAGES["partitions"] for message in messages)


def test_the_page_has_the_variables_of_an_mps_replica(tmp_path):
    from vdev.planning import allocation
    from vdev.planning.allocation import container_edits

    text = next(text for text, _ in PAIR.findall(PAGES["sharing"]) if "mps:" in text)
    file = tmp_path / "vdev.yaml"
    file.write_text(text)
    resource = preview([file], node="n", host_root=Path("/")).plan.devices.resources["nvidia.com/gpu"]
    edits = container_edits(resource, allocation.allocate(resource, [resource.slots[0].id]))
    for name in ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PIPE_DIRECTORY"):
        assert f"| `{name}` | `{edits.env[name]}`" in PAGES["sharing"]
