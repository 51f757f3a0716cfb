"""What a caller may say beforehand: masks, regions, a first matrix, bounds, known parameters, channels, batches."""

import numpy as np
import pytest
import torch
from PIL import Image
from tests.estimation.scenes import corner_error, pair, quad, scene

import caunet
from caunet.estimation import Estimator
from caunet.estimation.decomposition import compose
from caunet.estimation.motion_models import Affine, Euclidean, Fixed, Projective, Similarity, Translation

SIDE = 128
SIZE = (SIDE, SIDE)
H = quad(SIDE, 8, seed=3)
A, B = pair(H, SIDE)


@pytest.fixture(scope="module")
def projective():
    return Estimator(threads=1)


def rigid(angle=0.0, shift=(0.0, 0.0), scale=1.0):
    values = {"angle": angle, "shift_x": shift[0], "shift_y": shift[1], "scale": scale}
    return compose(values, SIZE).numpy()


def test_masks_keep_out_what_is_not_the_scene(projective, tmp_path):
    """Half of both images shows something else, the same in both: without masks it does not move."""
    still = scene(SIDE, seed=9)
    a, b, mask = A.copy(), B.copy(), np.ones(SIZE, bool)
    a[:, 70:], b[:, 70:], mask[:, 70:] = still[:, 70:], still[:, 70:], False
    Image.fromarray(mask).save(tmp_path / "mask.png")
    for given in (mask, mask.astype(np.uint8), torch.from_numpy(mask), tmp_path / "mask.png"):
        found = projective(a, b, mask_a=given, mask_b=given)
        assert corner_error(found.matrix[:, :], H, (SIDE, 70)) < 0.5
        assert found.reason == "found"
    hidden = np.ma.masked_array(a, ~mask), np.ma.masked_array(b, ~mask)
    holes = np.where(mask, a, np.nan), np.where(mask, b, np.nan)
    clear = [np.dstack([*[np.round(t * 255)] * 3, mask * 255]).astype(np.uint8) for t in (a, b)]
    for pair_ in (hidden, holes, clear, [Image.fromarray(t) for t in clear]):
        assert corner_error(projective(*pair_).matrix, H, (SIDE, 70)) < 0.5


def test_nothing_to_see_is_blank(projective):
    rgba = np.dstack([*[np.round(A * 255)] * 3, np.zeros(SIZE)]).astype(np.uint8)
    for a, b in ((rgba, B), (A, rgba), (np.full(SIZE, 0.5), B)):
        found = projective(a, b)
        assert (found.reason, found.confidence, found.covariance) == ("blank", 0.0, None)
        np.testing.assert_array_equal(found.matrix, np.eye(3))


def test_borders_are_found_unless_not_wanted():
    a, b = A.copy(), B.copy()
    for image in (a, b):
        image[:24], image[-24:], image[:, :24], image[:, -24:] = 0, 0, 0, 0
    assert corner_error(caunet.estimate(a, b).matrix, H, SIZE) < 1.0
    kept = caunet.estimate(a, b, find_borders=False)
    assert corner_error(kept.matrix, H, SIZE) > 1.0
    with pytest.raises(TypeError, match=r"^find_borders must be True or False, got 1"):
        Estimator(find_borders=1)


def test_a_region_speaks_for_itself(projective):
    """Left and right halves move differently; the region says which one is meant."""
    moved = rigid(shift=(5.0, -3.0))
    a, right = pair(moved, SIDE, seed=2)
    _, left = pair(rigid(shift=(-4.0, 6.0)), SIDE, seed=2)
    b = np.hstack([left[:, :64], right[:, 64:]])
    model = Estimator("translation", threads=1)
    found = model(a, b, region=(72, 8, 48, 112))
    assert corner_error(found.matrix, moved, SIZE) < 0.2
    assert (found.size_a, found.size_b) == (SIZE, SIZE)
    assert found.field.points[:, 0].min() >= 72
    other = model(a, b, region=(8, 8, 48, 112), region_b=(0, 8, 60, 112))
    assert corner_error(other.matrix, rigid(shift=(-4.0, 6.0)), SIZE) < 0.2
    # The covariance is that of the whole image's corners.
    assert found.covariance.shape == (8, 8)
    np.testing.assert_allclose(found.uncertainty([[0, 0]]), found.uncertainty([[96, 64]]), rtol=1e-6)
    tilted = projective(A, B, region=(30, 30, 64, 64))
    near, far = (np.trace(tilted.uncertainty([p, p])[0]) for p in ((62, 62), (0, 0)))
    assert far > 2 * near
    camera = caunet.estimate(A, A, "camera-rotation", focal=300, region=(30, 30, 64, 64))  # masked, not cut
    assert corner_error(camera.matrix, np.eye(3), SIZE) < 0.1


def test_an_initial_matrix_is_tried_first():
    model = Estimator("similarity", threads=1)
    truth = rigid(angle=37.0, shift=(6.0, -4.0), scale=1.3)
    a, b = pair(truth, SIDE, seed=5)
    near = rigid(angle=35.5, shift=(5.0, -3.0), scale=1.27)
    for given in (near, near.tolist(), torch.from_numpy(near), 2 * near, model(a, b, initial=near)):
        assert corner_error(model(a, b, initial=given).matrix, truth, SIZE) < 0.1
    # Of a simpler model what it can express is taken.
    simple = caunet.estimate(a, b, "translation", initial=near).matrix
    np.testing.assert_allclose(simple[:2, :2], np.eye(2), atol=1e-12)
    # A wrong one is replaced by what is found without it.
    assert corner_error(model(a, b, initial=rigid(angle=-80.0)).matrix, model(a, b).matrix, SIZE) < 0.2


@pytest.mark.parametrize(
    ("bounds", "angle"),
    [({"angle": 10}, 30.0), ({"shift": 4}, 0.0), ({"scale": 1.1}, 0.0), ({"angle": (80, 100)}, 0.0)],
)
def test_answers_outside_of_the_bounds_are_not_given(bounds, angle):
    truth = rigid(angle=angle, shift=(9.0, 5.0), scale=1.25)
    a, b = pair(truth, SIDE, seed=6)
    found = caunet.estimate(a, b, "similarity", bounds=bounds)
    assert found.reason == "out of range"
    assert found.confidence < 0.5
    assert "do not rely on it" in found.summary()
    p = found.parameters
    if "shift" in bounds:
        assert np.hypot(p["shift_x"], p["shift_y"]) <= 4.001
    if "scale" in bounds:
        assert 1 / 1.101 <= p["scale"] <= 1.101
    if "angle" in bounds:
        low, high = (-10, 10) if bounds["angle"] == 10 else bounds["angle"]
        assert low - 0.001 <= p["angle"] <= high + 0.001


def test_bounds_do_not_make_unrelated_images_out_of_range():
    noise = np.random.default_rng(3).random(SIZE)
    found = caunet.estimate(A, noise, "similarity", bounds={"shift": 40})
    assert (found.reason, found.confidence < 0.5) == ("unrelated", True)
    assert caunet.estimate(A, noise, "similarity").reason == "unrelated"


def test_bounds_that_hold_change_nothing_and_narrow_the_search():
    truth = rigid(angle=178.0, shift=(3.0, 5.0))
    a, b = pair(truth, SIDE, seed=6)
    found = caunet.estimate(a, b, "euclidean", bounds={"angle": (160, 200), "shift": 10})
    assert corner_error(found.matrix, truth, SIZE) < 0.1
    assert found.reason == "found"


@pytest.mark.parametrize(
    ("model", "fixed"),
    [
        (Similarity(), {"angle": 20.0}),
        (Similarity(), {"scale": 1.1}),
        (Similarity(), {"angle": 20.0, "scale": 1.1}),
        (Similarity(), {"shift_x": 4.0, "shift_y": -2.5}),
        (Similarity(), {"angle": 20.0, "shift_x": 4.0}),
        (Euclidean(), {"angle": 20.0}),
        (Euclidean(), {"shift_x": 4.0, "shift_y": -2.5}),
        (Translation(), {"shift_y": -2.5}),
        (Affine(), {"shift_x": 4.0, "shift_y": -2.5}),
        (Projective(), {"shift_x": 4.0, "shift_y": -2.5}),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, dict) else ", ".join(value),
)
def test_fixed_parameters_stay(model, fixed):
    truth = {"shift_x": 4.0, "shift_y": -2.5}
    if not isinstance(model, Translation):
        truth["angle"] = 20.0
    if isinstance(model, Similarity | Affine | Projective):
        truth["scale"] = 1.1
    matrix = compose(truth, SIZE).numpy()
    a, b = pair(matrix, SIDE, seed=7)
    found = caunet.estimate(a, b, model.name, fixed=fixed)
    assert found.model == model.name
    for name, value in fixed.items():
        assert found.parameters[name] == pytest.approx(value, abs=1e-6)
    assert corner_error(found.matrix, matrix, SIZE) < 0.1
    # What is not so stays as it is told.
    other = {name: value + 1.0 for name, value in fixed.items()}
    held = caunet.estimate(a, b, model.name, fixed=other).parameters
    for name, value in other.items():
        assert held[name] == pytest.approx(value, abs=1e-6)
    # The fit in closed form is the best of the family: nothing near it is better.
    bound = Fixed(model, fixed).for_images(SIZE, SIZE)
    rng = np.random.default_rng(0)
    source = rng.uniform(0, SIDE, (20, 2))
    target, weight = source + rng.normal(0, 2, (20, 2)), rng.random(20)

    def cost(M):
        moved = caunet.geometry.apply(M, source)
        return float(weight @ np.square(moved - target).sum(1))

    best = bound.fit(source, target, weight)
    for generator in bound.generators():
        algebra = np.append(generator, 0.0).reshape(3, 3)
        algebra *= 1e-3 / np.abs(algebra).max()
        for step in (algebra, -algebra):
            if not isinstance(model, Projective):  # whose fit is algebraic
                assert cost(best @ caunet.geometry.exponential(step)) >= cost(best) - 1e-9


def test_one_channel_steers(projective):
    noise = np.random.default_rng(0).random((2, SIDE, SIDE))
    a, b = (np.dstack([noise[0], t, noise[1][::-1]]) for t in (A, B))
    for channel in (1, "green", ("green", 1)):
        found = caunet.estimate(a, b, channel=channel)
        assert corner_error(found.matrix, H, SIZE) < 0.1
    five = np.dstack([noise[0], noise[1], A, noise[0], noise[1]])
    assert corner_error(caunet.estimate(five, B, channel=(2, "gray")).matrix, H, SIZE) < 0.1


def test_colors_tell_what_their_gray_does_not(projective):
    """Red and green whose gray is even: only with all channels there is something to see."""
    a, b = (np.dstack([t, 0.9 - 0.2989 / 0.587 * t, np.full_like(t, 0.5)]) for t in (A, B))
    assert caunet.estimate(a, b).confidence < 0.1
    found = caunet.estimate(a, b, channel="all")
    assert found.confidence > 0.9
    assert corner_error(found.matrix, H, SIZE) < 0.1
    # Of a colored image and a gray one, the channels of the colored one are tried.
    assert corner_error(caunet.estimate(a, B, channel="all").matrix, H, SIZE) < 0.1
    assert np.array_equal(caunet.estimate(A, B, channel="all").matrix, caunet.estimate(A, B).matrix)


def test_batches_are_loops(projective):
    a, b = (torch.from_numpy(np.stack([t, t[::-1]])).float() for t in (A, B))
    for first, second in ((a, b), (a[:, None].expand(-1, 3, -1, -1), b[:, None])):
        found = projective.batch(first, second)
        assert len(found) == 2
        for k in range(2):
            assert torch.equal(found[k].matrix, projective(first[k], second[k]).matrix)
    mask = torch.ones(2, SIDE, SIDE, dtype=torch.bool)
    mask[:, :, 100:] = False
    masked = projective.batch(a, b, mask_a=mask)
    assert torch.equal(masked[1].matrix, projective(a[1], b[1], mask_a=mask[1]).matrix)
    assert projective.batch(a[:0], b[:0]) == []
    for arguments, kind, message in [
        ((A, b), TypeError, r"a must be a tensor \(B, C, H, W\) or \(B, H, W\), got ndarray"),
        ((a, b[0]), ValueError, r"b must be a tensor \(B, C, H, W\) or \(B, H, W\), got \(128, 128\)"),
        ((a, b[:1]), ValueError, r"b must have as many images as a, 2, got 1"),
    ]:
        with pytest.raises(kind, match=f"^{message}"):
            projective.batch(*arguments)
    with pytest.raises(
        ValueError, match=r"^mask_b must have shape \(B, H, W\) with B = 2, got \(1, 128, 128\)"
    ):
        projective.batch(a, b, mask_b=mask[:1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mask_a": np.ones((5, 5), bool)}, r"mask_a must be \(height, width\) = \(128, 128\)"),
        ({"mask_b": np.zeros(SIZE, bool)}, r"mask_b must have pixels that count, got none"),
        ({"region": (0, 0, 200, 20)}, r"region must be .* within the image of height 128, width 128, got"),
        ({"region": (0, 0, 8, 20)}, r"region must be .* of at least 16 x 16, got"),
        ({"region": (0, 0, 20)}, r"region must be \(x, y, width, height\) in whole pixels, got"),
        ({"region_b": (0.5, 0, 20, 20)}, r"region_b must be \(x, y, width, height\) in whole pixels"),
        ({"region_b": "all"}, r"region_b must be"),
        ({"initial": np.eye(2)}, r"initial must be a matrix \(3, 3\), got shape \(2, 2\)"),
        ({"initial": np.zeros((3, 3))}, r"initial is singular"),
        ({"initial": np.full((3, 3), np.nan)}, r"initial is not finite"),
        ({"initial": "near"}, r"initial must be a matrix \(3, 3\), got 'near'"),
        ({"bounds": {"angle": -5}}, r"bounds\['angle'\] must be"),
        (
            {"bounds": {"shift": 3}, "initial": [[1, 0, 50], [0, 1, 0], [0, 0, 1]]},
            r"initial must be within the bounds",
        ),
        ({"model": "translation", "bounds": {"angle": (10, 20)}}, r"bounds must allow a motion of the model"),
        (
            {"fixed": {"angle": 0}},
            r"fixed must be a dict with some of shift_x, shift_y for the model 'projective'",
        ),
        (
            {"model": "similarity", "fixed": {}},
            r"fixed must be a dict with some of shift_x, shift_y, angle, scale",
        ),
        (
            {"model": "similarity", "fixed": {"angle": "none"}},
            r"fixed\['angle'\] must be a number, got 'none'",
        ),
        (
            {"model": "similarity", "fixed": {"scale": 0}},
            r"fixed\['scale'\] must be a positive number, got 0",
        ),
        ({"model": "similarity", "fixed": {"shift_x": 0}}, r"fixed must have both shifts, or the angle too"),
        ({"model": "translation", "fixed": {"shift_x": 0, "shift_y": 0}}, r"fixed must leave a parameter"),
        ({"model": "camera-rotation", "focal": 100, "fixed": {"angle": 0}}, r"fixed must be left out for"),
        ({"channel": "violet"}, r"channel must be an index, or one of gray, red, green, blue"),
        ({"channel": (0, 1, 2)}, r"channel must be one channel, or two, for a and for b"),
        ({"channel": 2}, r"channel must be at most 0 for a, got 2"),
    ],
)
def test_bad_arguments_are_refused_by_name(arguments, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        caunet.estimate(A, B, **arguments)


def test_a_mask_of_nothing_but_holes_is_refused(projective):
    holes, mask = A.copy(), np.zeros(SIZE, bool)
    holes[:64], mask[:64] = np.nan, True
    with pytest.raises(ValueError, match=r"^mask_a must have pixels that are in the image"):
        projective(holes, B, mask_a=mask)
    with pytest.raises(ValueError, match=r"^region must hold pixels that count"):
        projective(holes, B, region=(0, 0, 40, 40))
