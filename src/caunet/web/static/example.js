// A pair with a known answer, made from an embedded photograph: rotated, scaled, shifted, tilted and darkened.

import { apply, invert, multiply } from "./geometry.js";

const PREFERRED = ["astronaut", "coffee", "chelsea", "camera"];

// Two files a and b, and the matrix that takes points of a to points of b.
export async function example(photographs) {
  const wanted = PREFERRED.find((name) => photographs.some((photo) => photo.name === name));
  const photo = photographs.find(({ name }) => name === wanted) ?? photographs[0];
  const source = await pixels(photo.url);
  const [width, height] = [0.72, 0.72].map((part, n) => Math.round(part * (n ? source.height : source.width)));
  const origin = shift((source.width - width) / 2, (source.height - height) / 2);
  const matrix = motion(width, height);
  const a = await picture(source, origin, width, height, 1, 0);
  const b = await picture(source, multiply(origin, invert(matrix)), width, height, 0.86, 14);
  const file = (blob, which) => new File([blob], `${photo.name}-${which}.png`, { type: "image/png" });
  return { a: file(a, "first"), b: file(b, "second"), matrix };
}

const shift = (x, y) => [1, 0, x, 0, 1, y, 0, 0, 1];

function motion(width, height) {
  const [turn, size] = [(7 * Math.PI) / 180, 1.06];
  const [c, s] = [size * Math.cos(turn), size * Math.sin(turn)];
  const local = [c, -s, 0, s, c, 0, 0.08 / width, -0.05 / height, 1];
  const H = multiply(shift(width / 2 + 0.04 * width, height / 2 - 0.03 * height), multiply(local, shift(-width / 2, -height / 2)));
  return H.map((value) => value / H[8]);
}

async function pixels(url) {
  const bitmap = await createImageBitmap(await (await fetch(url)).blob());
  const canvas = Object.assign(document.createElement("canvas"), { width: bitmap.width, height: bitmap.height });
  const context = canvas.getContext("2d");
  context.drawImage(bitmap, 0, 0);
  return context.getImageData(0, 0, canvas.width, canvas.height);
}

// The picture whose pixel p is the source at H p, bilinear; `gain` and `bias` change its brightness.
function picture(source, H, width, height, gain, bias) {
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  const image = new ImageData(width, height);
  for (let y = 0, n = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1, n += 4) {
      const [u, v] = apply(H, [x, y]);
      for (let channel = 0; channel < 3; channel += 1) image.data[n + channel] = gain * bilinear(source, u, v, channel) + bias;
      image.data[n + 3] = 255;
    }
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

function bilinear({ data, width, height }, u, v, channel) {
  const [x, y] = [Math.min(Math.max(u, 0), width - 1.001), Math.min(Math.max(v, 0), height - 1.001)];
  const [i, j] = [Math.floor(x), Math.floor(y)];
  const [s, t] = [x - i, y - j];
  const at = (di, dj) => data[4 * ((j + dj) * width + i + di) + channel];
  return (1 - t) * ((1 - s) * at(0, 0) + s * at(1, 0)) + t * ((1 - s) * at(0, 1) + s * at(1, 1));
}
