# %% [markdown]
# # Train a CAN
#
# A contrast association network looks at two patches and says how the second one was turned. You train it, measure it
# and look at what a unit has learned. `pip install 'caunet[report]'` is all you need; no GPU.
#
# ## Pairs
#
# A pair is a patch, the same patch after a transformation, and the parameters z of that transformation: here one
# angle, in degrees, between -45 and 45. Pairs are made while the network learns.

# %%
import caunet

images = caunet.load_images("photos")  # small tiles of photographs, 32 x 32
pairs = caunet.PairSource(images, "rotation", pairs="fresh")
print(images.pixels.shape)
print(pairs)

# %%
from matplotlib.figure import Figure

x, y, z = next(pairs.stream(0, 1, batch=8))
figure = Figure(figsize=(9, 2.6), layout="constrained")
for column, (above, below) in enumerate(figure.subplots(2, 8).T):
    above.imshow(x[column], cmap="gray")
    below.imshow(y[column], cmap="gray")
    below.set_xlabel(f"{z[column].item():.0f}°")
    for axes in (above, below):
        axes.set(xticks=[], yticks=[])
figure  # Eight patches above, the same patches turned below, with the angle in degrees

# %% [markdown]
# ## The network
#
# 300 contrast association units, a competition (softmin), and a decoder. The weights of the units are never negative,
# so they learn by a multiplicative update; the decoder learns by Adam. `HybridOptimizer` gives each its own rule.

# %%
model = caunet.create_model("can", "rotation")
optimizer = caunet.HybridOptimizer.for_model(model)
print(f"{model.parameter_count():,} parameters")

# %% [markdown]
# ## Learn
#
# Any training loop works. This one makes 400 updates, a few seconds:

# %%
losses = []
for x, y, z in pairs.stream(0, 400, batch=100):
    optimizer.zero_grad()
    loss = ((model(x, y) - z) ** 2).mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(f"squared error: {losses[0]:.0f} at first, {sum(losses[-20:]) / 20:.0f} at the end")

# %% [markdown]
# ## Measure
#
# On pairs of other photographs. A network that always answers 0 has an error of 675 square degrees.

# %%
test = caunet.PairSource(caunet.load_images("photos", split="test"), "rotation")
errors = caunet.evaluate(model, test, limit=2000, progress=False)
print(f"parameter error {errors['parameter_error']:.0f} square degrees")

# %% [markdown]
# ## The network that took longer
#
# Four hundred updates are a beginning. The network that comes with the package has made 20,000:

# %%
trained = caunet.load_pretrained("can-rotation")
errors = caunet.evaluate(trained, test, limit=2000, progress=False)
print(f"parameter error {errors['parameter_error']:.2f} square degrees")

# %% [markdown]
# Its units have shared out the angles: sorted by the angle to which each responds most, the responses follow the
# diagonal. No single unit decides. The decoder reads all responses, and what changes with the angle is who has most.

# %%
import torch

figure = Figure(figsize=(9, 3.0), layout="constrained")
x, y, z = next(test.stream(0, 1, batch=100))
h = trained.units(x, y).detach()
order = z[:, 0].argsort()
left, right = figure.subplots(1, 2, width_ratios=[2, 1])
units = h.argmax(1)[order].unique()
peak = torch.stack([z[h[:, unit].argmax(), 0] for unit in units])
left.imshow(h[order][:, units[peak.argsort()]].T, aspect="auto", cmap="viridis")
left.set(xlabel="pairs, from -45° to 45°", ylabel="units that win", title="who wins", xticks=[], yticks=[])
with torch.no_grad():
    right.scatter(z[:, 0], trained(x, y)[:, 0], s=8)
right.set(xlabel="true angle", ylabel="inferred", title="the answer")
figure  # Responses of the winning units over pairs sorted by angle, and inferred angle against true angle

# %% [markdown]
# ## The same from a shell
#
# A run keeps its settings, metrics, checkpoints and weights in a folder, can be stopped and goes on to the same bits:
#
# ```console
# caunet train --profile quick --model can --task rotation --out runs/rotation
# caunet evaluate runs/rotation
# pip install 'caunet[export]'
# caunet export --weights runs/rotation rotation.onnx
# ```
#
# ## Next
#
# - Your own images: `--data FOLDER` ([images](../data.md)). Your own transformation: [a task of your own](../tasks.md).
# - [Training](../training.md): settings, resuming, several processes.
# - [CAUs in your own network](own-network.md).
