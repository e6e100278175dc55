/* The arithmetic of the sweep, so that what is drawn is what was counted: float32, the products and sums in the stated
   order (docs/metrics.md §2). Rounding a double after each operation gives the float32 result exactly. */

const f32 = Math.fround;
const LEVELS = 101;

/* Which two cells of the map a pixel lies between, and the weight of the second; -1 where the model sees nothing. */
function axisTable(cells, pixels, start, stop, mode) {
  const lo = new Int32Array(pixels).fill(-1);
  const hi = new Int32Array(pixels).fill(-1);
  const weight = new Float32Array(pixels);
  for (let i = 0; i < pixels; i++) {
    const centre = (i + 0.5) / pixels;
    if (centre < start || centre >= stop) continue;
    let source;
    if (mode === "align_corners") {
      const covered = pixels * (stop - start);
      source = (i - start * pixels) * (covered > 1 ? (cells - 1) / (covered - 1) : 0);
    } else {
      source = ((centre - start) / (stop - start)) * cells - (mode === "bilinear" ? 0.5 : 0);
    }
    source = Math.min(Math.max(source, 0), mode === "nearest" ? cells : cells - 1);
    lo[i] = Math.min(Math.floor(source), cells - 1);
    hi[i] = mode === "nearest" ? lo[i] : Math.min(lo[i] + 1, cells - 1);
    weight[i] = mode === "nearest" ? 0 : source - lo[i];
  }
  return { lo, hi, weight };
}

/* The upsampled map of the seen pixels with its smallest and largest value and where the largest is first met; `flat`:
   it cannot be normalised. */
function upsample(map, [h, w], frame, mode, size) {
  const ys = axisTable(h, size, frame[0], frame[2], mode);
  const xs = axisTable(w, size, frame[1], frame[3], mode);
  const value = new Float32Array(size * size);
  const seen = new Uint8Array(size * size);
  let min = Infinity;
  let max = -Infinity;
  let argmax = 0;
  let flat = true;
  let broken = false;
  for (let y = 0; y < size; y++) {
    if (ys.lo[y] < 0) continue;
    const top = ys.lo[y] * w;
    const bottom = ys.hi[y] * w;
    const wy = ys.weight[y];
    const vy = f32(1 - wy);
    for (let x = 0; x < size; x++) {
      if (xs.lo[x] < 0) continue;
      const wx = xs.weight[x];
      const vx = f32(1 - wx);
      const a = f32(f32(map[top + xs.lo[x]] * vx) + f32(map[top + xs.hi[x]] * wx));
      const b = f32(f32(map[bottom + xs.lo[x]] * vx) + f32(map[bottom + xs.hi[x]] * wx));
      const v = f32(f32(a * vy) + f32(b * wy));
      broken = broken || !Number.isFinite(v);
      if (v < min) min = v;
      if (v > max) {
        max = v;
        argmax = y * size + x;
      }
      value[y * size + x] = v;
      seen[y * size + x] = 1;
      flat = false;
    }
  }
  return { value, seen, min, max, argmax, flat: flat || broken };
}

/* How many thresholds a value passes; `thresholds` rise. */
function passed(value, thresholds) {
  let low = 0;
  let high = LEVELS;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (value >= thresholds[middle]) low = middle + 1;
    else high = middle;
  }
  return low;
}

/* The normalised map, float32 per pixel, and how many thresholds each pixel passes: B(tau_k) is where that exceeds k;
   and the first maximum, before normalisation can make ties. */
function sweepMap(map, grid, frame, how, size) {
  const up = upsample(map, grid, frame, how.upsample, size);
  const span = f32(up.max - up.min);
  const flat =
    up.flat || !(span > 0 && Number.isFinite(span)) || (how.normalise === "max" && !(up.max > 0));
  const offset = how.normalise === "minmax" ? up.min : 0;
  const scale = how.normalise === "minmax" ? span : how.normalise === "max" ? up.max : 1;
  const normal = new Float32Array(size * size);
  const levels = new Uint8Array(size * size);
  const rest = flat ? 0 : f32(f32(up.min - offset) / scale);
  for (let i = 0; i < normal.length; i++) {
    normal[i] = flat || !up.seen[i] ? rest : f32(f32(up.value[i] - offset) / scale);
    levels[i] = passed(normal[i], how.thresholds);
  }
  return { normal, levels, seen: up.seen, argmax: flat ? 0 : up.argmax, flat };
}

function bytesOf(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

/* Little-endian whatever the machine. */
function floatsOf(text) {
  const view = new DataView(bytesOf(text).buffer);
  return Float32Array.from({ length: view.byteLength / 4 }, (_, i) => view.getFloat32(4 * i, true));
}

function shortsOf(text) {
  const view = new DataView(bytesOf(text).buffer);
  return Uint16Array.from({ length: view.byteLength / 2 }, (_, i) => view.getUint16(2 * i, true));
}

/* Row-major run lengths, 0 and 1 in turn, starting with 0. */
function maskOf(runs, size) {
  const mask = new Uint8Array(size * size);
  let at = 0;
  runs.forEach((length, i) => {
    if (i % 2) mask.fill(1, at, at + length);
    at += length;
  });
  return mask;
}
