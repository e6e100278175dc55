/* Boxes of the connected regions of B(tau_k), pixels that touch, also at corners; the highest peak first, as the server
   gives them: x0, y0, x1, y1 in fractions of width and height (the box holds pixels x0 <= x < x1), and the peak. */

function regionBoxes(swept, k, size) {
  const inside = (i) => swept.levels[i] > k;
  const done = new Uint8Array(size * size);
  const boxes = [];
  for (let first = 0; first < done.length; first++) {
    if (done[first] || !inside(first)) continue;
    done[first] = 1;
    const waiting = [first];
    const box = { x0: size, y0: size, x1: 0, y1: 0, peak: 0 };
    while (waiting.length) {
      const i = waiting.pop();
      const x = i % size;
      const y = (i - x) / size;
      box.x0 = Math.min(box.x0, x);
      box.y0 = Math.min(box.y0, y);
      box.x1 = Math.max(box.x1, x + 1);
      box.y1 = Math.max(box.y1, y + 1);
      box.peak = Math.max(box.peak, swept.normal[i]);
      for (let ny = Math.max(y - 1, 0); ny <= Math.min(y + 1, size - 1); ny++) {
        for (let nx = Math.max(x - 1, 0); nx <= Math.min(x + 1, size - 1); nx++) {
          const next = ny * size + nx;
          if (done[next] || !inside(next)) continue;
          done[next] = 1;
          waiting.push(next);
        }
      }
    }
    boxes.push([box.x0 / size, box.y0 / size, box.x1 / size, box.y1 / size, box.peak]);
  }
  return boxes.sort((a, b) => b[4] - a[4]);
}
