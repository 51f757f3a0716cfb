# %% [markdown]
# # Align a stack
#
# Frames of a camera or a microscope that drifts are brought into one common frame, without errors that add up.
# `pip install 'caunet[report,stacks]'` brings the photograph used here, and TIFF and video files.
#
# ## A stack that drifts
#
# Sixteen frames, cut out of a photograph along a random walk, with noise and a flickering lamp; one frame is blank.

# %%
import numpy as np

from caunet.images import photograph

scene = photograph("gravel.png").astype(float)
random = np.random.default_rng(3)
path = np.cumsum(random.normal(0, 4, (16, 2)), axis=0)
path = np.round(path - path[0]).astype(int)  # where each frame begins: (x, y), the first one at (0, 0)
frames = []
for x, y in path:
    frame = scene[180 + y : 308 + y, 180 + x : 308 + x]
    frames.append(frame * random.uniform(0.8, 1.2) + random.normal(0, 6, frame.shape))
frames = np.clip(np.stack(frames), 0, 255).astype(np.uint8)
frames[9] = 90
print(frames.shape, frames.dtype)

# %% [markdown]
# ## Align it
#
# `caunet.align` takes an array, a folder, a list of paths, a multi-page TIFF or a video. The motion model is the simplest that
# can hold: here nothing turns.

# %%
import caunet

found = caunet.align(frames, model="translation", progress=False)
print(found.matrices.shape)  # one matrix per frame: where its points lie in the first frame
print(found.problems)

# %% [markdown]
# The blank frame is named, and has no matrix. The others are right to a fraction of a pixel:

# %%
shifts = found.matrices[:, :2, 2]
good = np.isfinite(shifts[:, 0])
error = np.abs(shifts[good] - path[good])
print(f"{good.sum()} frames, off by {error.mean():.3f} px on average, {error.max():.3f} px at most")

# %% [markdown]
# ## Look at it
#
# The mean of all frames is a blur before, and a photograph after. `found.warp` gives one aligned frame at a time, in the
# type that went in; `crop="common"` keeps the part that all frames show.

# %%
from matplotlib.figure import Figure

aligned = np.stack([frame for frame, ok in zip(found.warp(frames), good, strict=True) if ok])
figure = Figure(figsize=(9, 3.2), layout="constrained")
before, after, walk = figure.subplots(1, 3)
before.imshow(frames[good].mean(0), cmap="gray")
before.set_title("mean of the frames, before")
after.imshow(np.ma.masked_equal(aligned, 0).mean(0), cmap="gray")
after.set_title("after")
walk.plot(*path.T, color="0.7", linewidth=4, label="true path")
walk.plot(*shifts.T, color="C2", linewidth=1.5, label="found")
walk.set(title="the drift, in pixels", aspect="equal")
walk.invert_yaxis()
walk.legend(frameon=False)
for axes in (before, after):
    axes.axis("off")
figure  # Mean of the frames before and after, and the path of the drift

# %% [markdown]
# ## Files
#
# The same from a shell. These frames as a stack of pages:

# %%
import tifffile

tifffile.imwrite("cells.tif", frames)

# %% [markdown]
# ```console
# caunet align cells.tif --model translation --out aligned.ome.tif --table matrices.csv --crop common
# caunet align cells.tif --model translation --out steady.mp4 --rate 5
# ```
#
# Exit code 3 says that some frames could not be used (here the blank one); it is printed, and the table names it. FRAMES may be
# a video as well. How it works, and beside what it was measured: [stacks and videos](../stacks.md).
