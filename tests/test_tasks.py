"""Tasks against the paper's formulas and ranges, their inverses, and the examples of the documentation."""

import copy
import math
import pickle
import re
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from caunet import geometry, tasks
from caunet.tasks import task as home

DOCS = Path(__file__).parents[1] / "docs"
PAPER = ("translation", "rotation", "scaling", "affine", "projective")


def run_documentation(name: str) -> dict:
    """Run the Python blocks of a page, in order, in one namespace."""
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    namespace: dict = {}
    exec(compile("\n".join(blocks), name, "exec"), namespace)
    return namespace


@pytest.fixture
def scratch_registry(monkeypatch):
    monkeypatch.setattr(home, "_REGISTRY", copy.deepcopy(home._REGISTRY))


def written_out(name: str, z: list[float]) -> list[list[float]]:
    """The paper's H of one z, copied from its text."""
    if name == "translation":
        return [[1, 0, z[0]], [0, 1, z[1]], [0, 0, 1]]
    if name == "rotation":
        c, s = math.cos(math.radians(z[0])), math.sin(math.radians(z[0]))
        return [[c, -s, 0], [s, c, 0], [0, 0, 1]]
    if name == "scaling":
        return [[z[0], 0, 0], [0, z[1], 0], [0, 0, 1]]
    last = z[4:] if name == "projective" else [0, 0]
    return [[1 + z[0], z[1], 0], [z[2], 1 + z[3], 0], [*last, 1]]


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("translation", [-5] * 2, [5] * 2),
        ("rotation", [-45], [45]),
        ("scaling", [0.5] * 2, [2] * 2),
        ("affine", [-0.5] * 4, [0.5] * 4),
        ("projective", [-0.5] * 4 + [-0.01] * 2, [0.5] * 4 + [0.01] * 2),
    ],
)
def test_the_papers_ranges(name, low, high):
    task = tasks.get(name)
    assert list(task.low) == low
    assert list(task.high) == high
    assert task.dim == len(low) == len(task.names)
    z = task.sample(20_000, torch.Generator().manual_seed(0), dtype=torch.float64)
    low, high = torch.tensor(low, dtype=torch.float64), torch.tensor(high, dtype=torch.float64)
    assert ((z >= low) & (z <= high)).all()
    # Moments of the uniform distribution, to five standard errors.
    width = high - low
    torch.testing.assert_close(z.mean(0) / width, (low + high) / 2 / width, atol=5 * 12**-0.5 / 141, rtol=0)
    torch.testing.assert_close(
        z.var(0) / width**2, torch.full_like(width, 1 / 12), atol=5 * 0.0745 / 141, rtol=0
    )


@pytest.mark.parametrize("name", PAPER)
def test_homographies_are_the_papers(name):
    task = tasks.get(name)
    z = task.sample(5, torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = torch.tensor([written_out(name, row) for row in z.tolist()], dtype=torch.float64)
    torch.testing.assert_close(task.homography(z), expected)
    torch.testing.assert_close(task.homography(z[0]), expected[0])


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(PAPER), st.integers(0, 2**31), st.floats(-10, 10).filter(lambda s: abs(s) > 0.01))
def test_parameters_undo_homography_at_any_scale(name, seed, multiple):
    task = tasks.get(name)
    for dtype, atol in ((torch.float64, 1e-10), (torch.float32, 1e-4)):
        z = task.sample(6, torch.Generator().manual_seed(seed), dtype=dtype).reshape(2, 3, -1)
        torch.testing.assert_close(task.parameters(multiple * task.homography(z)), z, atol=atol, rtol=0)


def test_parameters_lie_outside_the_range_if_H_does():
    z = tasks.get("translation").parameters(geometry.translate(40.0, 0.0))
    assert z.tolist() == [40.0, 0.0]


@pytest.mark.parametrize(
    ("name", "H"),
    [
        ("translation", geometry.rotate(1.0)),
        ("rotation", geometry.translate(1.0, 0.0)),
        ("scaling", geometry.rotate(10.0)),
        ("affine", geometry.translate(0.0, 1.0)),
        ("affine", geometry.projective(torch.tensor([0, 0, 0, 0, 0.01, 0]))),
        ("projective", geometry.translate(0.0, 1.0)),
        ("rotation", torch.full((3, 3), math.nan)),
    ],
)
def test_parameters_refuse_another_family_and_name_the_first(name, H):
    with pytest.raises(ValueError, match=rf"H is not of the task '{name}'"):
        tasks.get(name).parameters(H)
    with pytest.raises(ValueError, match=r"H\[2\] is not of"):
        tasks.get(name).parameters(torch.stack([torch.eye(3), torch.eye(3), H, H]))


def test_draws_depend_on_the_generator_and_not_on_the_dtype():
    task = tasks.get("affine")
    one, two = (
        task.sample(9, torch.Generator().manual_seed(3), dtype=d) for d in (torch.float32, torch.float64)
    )
    assert one.dtype == torch.float32
    assert torch.equal(one, two.float())
    assert not torch.equal(one, task.sample(9, torch.Generator().manual_seed(4)))


def test_from_uniform_reaches_both_ends():
    task = tasks.get("projective")
    for u, end in ((0.0, task.low), (1.0, task.high)):
        assert task.from_uniform(torch.full((6,), u, dtype=torch.float64)).tolist() == list(end)


def test_homography_is_differentiable():
    for name in PAPER:
        task = tasks.get(name)
        z = task.sample(2, torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
        assert torch.autograd.gradcheck(task.homography, (z,))
        assert torch.autograd.gradcheck(lambda z, task=task: task.parameters(task.homography(z)), (z,))


def test_unknown_names_are_met_with_the_known_ones():
    with pytest.raises(
        ValueError, match=r"unknown task 'rotaton'; did you mean 'rotation'\? Known tasks: transl"
    ):
        tasks.get("rotaton")
    with pytest.raises(ValueError, match=r"unknown task 'xyz'\. Known tasks: .*projective"):
        tasks.get("xyz")
    assert tasks.get(tasks.get("affine")) is tasks.get("affine")


def test_wrong_shapes_and_types_are_named():
    with pytest.raises(ValueError, match=r"z must have shape \(\.\.\., 2\) for scaling, got \(4, 3\)"):
        tasks.get("scaling").homography(torch.zeros(4, 3))
    with pytest.raises(TypeError, match="z must be a floating tensor"):
        tasks.get("scaling").homography(torch.zeros(4, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match="u must have shape"):
        tasks.get("scaling").from_uniform(torch.zeros(3))


def test_a_task_must_make_sense():
    def make(**change):
        parts = {"name": "t", "names": ("a",), "low": (0.0,), "high": (1.0,)} | change
        return tasks.Task(**parts, build=geometry.affine, read=geometry.affine)

    with pytest.raises(ValueError, match="high must have one entry"):
        make(high=(1.0, 2.0))
    with pytest.raises(ValueError, match="low must be below high"):
        make(low=(1.0,))
    with pytest.raises(ValueError, match="low must be below high"):
        make(high=(math.nan,))
    with pytest.raises(ValueError, match="names must hold at least one parameter"):
        make(names=(), low=(), high=())


def test_a_task_can_be_sent_to_another_process():
    assert pickle.loads(pickle.dumps(tasks.get("projective"))) == tasks.get("projective")


@pytest.mark.usefixtures("scratch_registry")
def test_the_documentation_registers_two_more():
    run_documentation("tasks.md")
    in_space = tuple(task.name for task in tasks.SPACE)
    assert tasks.names() == (*PAPER, "motion", "wide-motion", *in_space, "euclidean", "similarity")
    corner = torch.tensor([[5.0, 0.0]], dtype=torch.float64)
    for name, expected in (("euclidean", (1.0, 7.0)), ("similarity", (1.0, 8.0))):
        task = tasks.get(name)
        z = task.sample(50, torch.Generator().manual_seed(0), dtype=torch.float64)
        torch.testing.assert_close(task.parameters(-2 * task.homography(z)), z, atol=1e-10, rtol=0)
        # A quarter turn takes (5, 0) to (0, 5), the scale 1.2 to (0, 6); then it is shifted by (1, 2).
        z = [90.0, 1.0, 2.0] if name == "euclidean" else [90.0, 1.2, 1.0, 2.0]
        H = task.homography(torch.tensor(z, dtype=torch.float64))
        torch.testing.assert_close(geometry.apply(H, corner)[0], torch.tensor(expected, dtype=torch.float64))
        with pytest.raises(ValueError, match=f"not of the task '{name}'"):
            task.parameters(geometry.scale(2.0, 1.0))
        with pytest.raises(ValueError, match="exists"):
            tasks.register(task)
        assert tasks.register(task, replace=True) is task


def test_the_page_on_conventions_is_true():
    run_documentation("conventions.md")
