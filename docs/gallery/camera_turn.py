# %% [markdown]
# # A camera that turns
#
# A camera on a tripod turns by three angles. With a known focal length they are all there is to find, and the answer is
# more precise than a free homography's.

# %%
import torch
from PIL import Image

import caunet
from caunet import geometry
from caunet.estimation.motion_models import CameraRotation
from caunet.images import photograph

first = torch.from_numpy(photograph("camera.png")).float() / 255
camera = CameraRotation(focal=600).for_images(first.shape, first.shape)
H = torch.from_numpy(camera.homography(pan=6.0, tilt=-2.0, roll=4.0))
second = geometry.warp(first[None], H)[0]

found = caunet.estimate(first, second, model="camera-rotation", focal=600)
print({name: round(float(found.parameters[name]), 3) for name in ("pan", "tilt", "roll")})

# %%
both = torch.cat([first, second], dim=1)
Image.fromarray((255 * both).byte().numpy())  # A photograph, and the same as seen after the camera has turned
