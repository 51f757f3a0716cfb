// Homographies as nine numbers by rows; points are [x, y], x to the right, y down.

// z of a task to H, with the origin at the center of the patch, as in caunet.tasks; null for tasks not known here.
export function homography(task, z) {
  const linear = ([a, b, c, d], p = 0, q = 0) => [1 + a, b, 0, c, 1 + d, 0, p, q, 1];
  const turn = (z[0] * Math.PI) / 180;
  switch (task) {
    case "translation": return [1, 0, z[0], 0, 1, z[1], 0, 0, 1];
    case "rotation": return [Math.cos(turn), -Math.sin(turn), 0, Math.sin(turn), Math.cos(turn), 0, 0, 0, 1];
    case "scaling": return [z[0], 0, 0, 0, z[1], 0, 0, 0, 1];
    case "affine": return linear(z);
    case "projective": return linear(z, z[4], z[5]);
    default: return null;
  }
}

export function apply(H, [x, y]) {
  const w = H[6] * x + H[7] * y + H[8];
  return [(H[0] * x + H[1] * y + H[2]) / w, (H[3] * x + H[4] * y + H[5]) / w];
}

export function invert([a, b, c, d, e, f, g, h, i]) {
  const adjugate = [
    e * i - f * h, c * h - b * i, b * f - c * e,
    f * g - d * i, a * i - c * g, c * d - a * f,
    d * h - e * g, b * g - a * h, a * e - b * d,
  ];
  return adjugate.map((value) => value / adjugate[8]);
}

export const multiply = (A, B) => {
  const entry = (row, column) => [0, 1, 2].reduce((sum, k) => sum + A[3 * row + k] * B[3 * k + column], 0);
  return Array.from({ length: 9 }, (_, n) => entry(Math.floor(n / 3), n % 3));
};

export const corners = (half) => [[-half, -half], [half, -half], [half, half], [-half, half]];

// Handles on the outline of the transformed patch: where each is, and which z puts it at `to`.
export function handles(task, z, half) {
  const H = homography(task, z);
  if (!H) return [];
  const at = (x, y) => apply(H, [x, y]);
  const put = (index, values) => z.map((old, n) => (index.includes(n) ? values[index.indexOf(n)] : old));
  const angle = ([x, y]) => [(Math.atan2(y, x) * 180) / Math.PI];
  const bend = [1 + (z[4] ?? 0) * half, 1 + (z[5] ?? 0) * half];
  const stretch = (axis) => ({ at: axis ? at(0, half) : at(half, 0), move: (to) => put([axis], [to[axis] / half]) });
  const column = (first) => ({
    at: first ? at(half, 0) : at(0, half),
    move: ([x, y]) => first
      ? put([0, 2], [(x * bend[0]) / half - 1, (y * bend[0]) / half])
      : put([1, 3], [(x * bend[1]) / half, (y * bend[1]) / half - 1]),
  });
  switch (task) {
    case "translation": return [{ at: at(0, 0), move: (to) => to }];
    case "rotation": return [{ at: at(half, 0), move: angle }];
    case "scaling": return [stretch(0), stretch(1)];
    default: return [column(true), column(false)];
  }
}
