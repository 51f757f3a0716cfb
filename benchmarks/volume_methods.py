"""Ways to register two volumes: caunet and its peers, each behind the same call.

A method takes a, b, their grids (4 x 4, voxels to millimeters in LPS) and the model (rigid or affine), and gives the
transform (4 x 4) from millimeters of a to millimeters of b, in LPS. All use THREADS threads.
"""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import caunet
import caunet.volumes

Register = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray, str], np.ndarray]
THREADS = int(os.environ.get("THREADS", "2"))
FLIP = np.diag([-1.0, -1.0, 1.0, 1.0])  # LPS to RAS and back


def by_caunet(a, b, grid_a, grid_b, model):
    volumes = [caunet.volumes.Volume(v, grid) for v, grid in ((a, grid_a), (b, grid_b))]
    found = caunet.estimate_volume(*volumes, model=model, threads=THREADS)
    by_caunet.confidence = found.confidence
    return found.in_space("LPS")


def last_confidence() -> float:
    """How sure caunet was of the last answer."""
    return by_caunet.confidence


def itk_image(values, grid):
    import SimpleITK as sitk

    image, spacing = sitk.GetImageFromArray(values), np.sqrt((grid[:3, :3] ** 2).sum(0))
    image.SetSpacing(spacing.tolist())
    image.SetOrigin(grid[:3, 3].tolist())
    image.SetDirection((grid[:3, :3] / spacing).ravel().tolist())
    return image


def matrix_of(transform: Callable[[tuple[float, ...]], Any]) -> np.ndarray:
    """(4, 4) of an affine function of points."""
    T = np.eye(4)
    T[:3, 3] = transform((0.0, 0.0, 0.0))
    for k, unit in enumerate(np.eye(3).tolist()):
        T[:3, k] = np.array(transform(tuple(unit))) - T[:3, 3]
    return T


def by_simpleitk(
    metric, optimizer="step", start="moments", shrink=(4, 2, 1), sigmas=(2, 1, 0), share=(1, 1, 1)
):
    def run(a, b, grid_a, grid_b, model):
        import SimpleITK as sitk

        sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(THREADS)
        fixed, moving = itk_image(a, grid_a), itk_image(b, grid_b)
        kind = sitk.Euler3DTransform() if model == "rigid" else sitk.AffineTransform(3)
        how = getattr(sitk.CenteredTransformInitializerFilter, start.upper())
        method = sitk.ImageRegistrationMethod()
        method.SetInitialTransform(sitk.CenteredTransformInitializer(fixed, moving, kind, how))
        if metric == "mattes":
            method.SetMetricAsMattesMutualInformation(50)
        else:
            method.SetMetricAsCorrelation()
        method.SetInterpolator(sitk.sitkLinear)
        if min(share) < 1:
            method.SetMetricSamplingStrategy(method.RANDOM)
            method.SetMetricSamplingPercentagePerLevel(list(share), 1)
        if optimizer == "step":
            method.SetOptimizerAsRegularStepGradientDescent(
                2.0, 1e-4, 120, relaxationFactor=0.5, gradientMagnitudeTolerance=1e-8
            )
        elif optimizer == "fine step":
            method.SetOptimizerAsRegularStepGradientDescent(
                2.0, 1e-5, 500, relaxationFactor=0.7, gradientMagnitudeTolerance=1e-10
            )
        elif optimizer == "line search":
            method.SetOptimizerAsConjugateGradientLineSearch(
                1.0, 100, 1e-8, 10, lineSearchUpperLimit=2.0,
                estimateLearningRate=method.EachIteration, maximumStepSizeInPhysicalUnits=2.0,
            )  # fmt: skip
        else:
            method.SetOptimizerAsLBFGS2(1e-7, 100)
        method.SetOptimizerScalesFromPhysicalShift()
        method.SetShrinkFactorsPerLevel(list(shrink))
        method.SetSmoothingSigmasPerLevel(list(sigmas))
        method.SmoothingSigmasAreSpecifiedInPhysicalUnitsOff()
        return matrix_of(method.Execute(fixed, moving).TransformPoint)

    return run


def by_ants(rigid="Rigid", affine="Affine", search=False, **settings):
    def run(a, b, grid_a, grid_b, model):
        import ants

        def image(values, grid):
            spacing = np.sqrt((grid[:3, :3] ** 2).sum(0))
            return ants.from_numpy(
                np.ascontiguousarray(values.transpose(2, 1, 0)),
                origin=grid[:3, 3].tolist(), spacing=spacing.tolist(), direction=grid[:3, :3] / spacing,
            )  # fmt: skip

        fixed, moving = image(a, grid_a), image(b, grid_b)
        with tempfile.TemporaryDirectory() as folder:
            first = None
            if search:
                first = ants.affine_initializer(
                    fixed, moving, search_factor=60, radian_fraction=1.0, local_search_iterations=10,
                    txfn=str(Path(folder) / "first.mat"),
                )  # fmt: skip
            found = ants.registration(
                fixed, moving, type_of_transform={"rigid": rigid, "affine": affine}[model],
                initial_transform=first, random_seed=1, outprefix=str(Path(folder) / "found"), **settings,
            )  # fmt: skip
            return matrix_of(ants.read_transform(found["fwdtransforms"][0]).apply_to_point)

    return run


def by_dipy(
    share=None, steps=("center_of_mass", "translation", "rigid"), iterations=(10000, 1000, 100), bins=32
):
    def run(a, b, grid_a, grid_b, model):
        import logging

        from dipy.align import affine_registration

        logging.getLogger("dipy").setLevel(logging.WARNING)
        pipeline = [*steps] + (["affine"] if model == "affine" else [])
        static, moving = (np.ascontiguousarray(v.transpose(2, 1, 0), dtype=np.float64) for v in (a, b))
        _, T = affine_registration(
            moving, static, moving_affine=FLIP @ grid_b, static_affine=FLIP @ grid_a, pipeline=pipeline,
            level_iters=list(iterations), sigmas=[3.0, 1.0, 0.0], factors=[4, 2, 1], nbins=bins,
            sampling_proportion=share,
        )  # fmt: skip
        return FLIP @ T @ FLIP

    return run


def by_greedy(metric="NMI", iterations="100x50x20", first="moments 1", search=""):
    def run(a, b, grid_a, grid_b, model):
        from picsl_greedy import Greedy3D

        greedy = Greedy3D()
        given = {"fixed": itk_image(a, grid_a), "moving": itk_image(b, grid_b)}
        common = f"-d 3 -threads {THREADS} -V 0 -i fixed moving"
        begin = "-ia-identity" if first == "identity" else "-ia-image-centers"
        if first.startswith("moments"):
            greedy.execute(f"{common} -{first} -det 1 -o first", first=None, **given)
            begin = "-ia first"
        freedom = 6 if model == "rigid" else 12
        greedy.execute(
            f"{common} -a -dof {freedom} -m {metric} -n {iterations} {begin} {search} -o found",
            found=None,
            **given,
        )
        return FLIP @ greedy["found"] @ FLIP

    return run


# Settings were chosen on BrainWeb's T1 volume at half resolution, turned by 30 degrees (and greedy by 180);
# errors in millimeters and CPU seconds there:
# - SimpleITK, both metrics: regular steps down to 1e-4 (Mattes 0.062 mm, 7 s; on a random quarter of the voxels of the
#   finest level and half of the middle one 0.018, 9 s; on a tenth 0.020, 12 s), from moments or from the boxes (0.018,
#   0.019); steps down to 2e-3 only (0.8). Correlation is at 0.19 (9 s) with all voxels, at 0.20 (10 s) with a quarter,
#   at 0.20 (17 s) with steps down to 1e-5. Line searches and L-BFGS took minutes. These with up to 300 steps a level;
#   120 are allowed, because what needs more is lost.
# - ANTs: its defaults 0.016 (8 s); dense sampling 0.022 (28 s); correlation 0.31 (14 s); three levels with up to 100
#   iterations at the finest 0.010 (16 s), which is not worth its time.
# - dipy: 30 % of the voxels 9.0 (14 s), without the step of translations 10.2 (5 s), all voxels 10.2 (31 s): none is
#   found; at 10 degrees all voxels and up to 10,000 iterations are at 0.40.
# - greedy: NMI 0.033 (3 s), NCC 0.059, WNCC 0.039, SSD 3.7; affine NMI 0.12, NCC 0.33, WNCC 0.23. From second moments
#   an affine motion is lost; a search over 500 rotations does not find half a turn, one over 2000 does (6 s).
#   100 iterations at the finest level instead of 20: nothing.
METHODS: dict[str, Register] = {
    "caunet": by_caunet,
    "SimpleITK Mattes": by_simpleitk("mattes", share=(1, 0.5, 0.25)),
    "SimpleITK correlation": by_simpleitk("correlation"),
    "ANTs": by_ants(),
    "dipy": by_dipy(0.3),
    "greedy": by_greedy(search="-search 2000 any 20"),
}
