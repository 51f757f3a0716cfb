// Pictures that a person has chosen: shrunk before they are sent, and made readable where the browser cannot show them.

import { picture } from "./api.js";
import { html } from "./draw.js";

const LONGEST = 1600; // the server compares at most so many pixels a side
const LIMIT = 10 * 2 ** 20; // and reads so much of one request

export const fits = (...files) => files.reduce((sum, file) => sum + file.size, 4096) < LIMIT;
export const size = (bytes) => (bytes < 2 ** 20 ? `${Math.max(1, Math.round(bytes / 1024))} KB` : `${(bytes / 2 ** 20).toFixed(1)} MB`);

// A picture as a bitmap; formats that the browser does not know (TIFF, HEIC) come back from the server as PNG.
// `size` is [height, width] of the original, `factor` how many times the bitmap is smaller.
export async function open(file, factor) {
  try {
    const bitmap = await createImageBitmap(file);
    return { bitmap, file, size: [bitmap.height, bitmap.width], factor: 1 };
  } catch {
    if (!fits(file)) throw new Error(`picture: too large to send, ${size(file.size)}; the limit is ${size(LIMIT)}.`);
    const answer = await picture(file, factor);
    const blob = decode(answer.png);
    return { bitmap: await createImageBitmap(blob), file: blob, size: answer.size, factor: answer.factor, original: file };
  }
}

// By what whole number pictures of these sizes are made smaller: all by the same.
export const reduction = (...sizes) => Math.max(1, Math.ceil(Math.max(...sizes.flat()) / LONGEST));

// A file `factor` times smaller than the picture: the mean of each square of pixels, what is left over dropped.
export async function reduced(opened, factor) {
  const { bitmap, file } = opened;
  if (factor === opened.factor && fits(file, file)) return file;
  if (opened.original) return (await open(opened.original, factor)).file;
  const [height, width] = opened.size.map((side) => Math.floor(side / factor));
  const canvas = html("canvas", { width, height });
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, 0, 0, width * factor, height * factor, 0, 0, width, height);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/jpeg", 0.95));
}

// With sides of at most `largest`, whatever its shape, as PNG.
export async function shrunk({ bitmap }, largest) {
  const scale = Math.min(1, largest / Math.max(bitmap.width, bitmap.height));
  const [width, height] = [bitmap.width, bitmap.height].map((side) => Math.max(1, Math.round(side * scale)));
  const canvas = html("canvas", { width, height });
  canvas.getContext("2d").drawImage(bitmap, 0, 0, width, height);
  const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  return { blob, width, height, url: URL.createObjectURL(blob) };
}

export function decode(base64) {
  const text = atob(base64.replace(/^data:[^,]*,/, ""));
  return new Blob([Uint8Array.from(text, (letter) => letter.charCodeAt(0))], { type: "image/png" });
}
