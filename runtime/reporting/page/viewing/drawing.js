/* One overlay on a canvas: radiograph, heat map, outlines and the maximum. */

/* matplotlib's "inferno" (CC0), perceptually uniform: 256 colours, three bytes each. */
const COLOURS = bytesOf(
  "AAAEAQAFAQEGAQEIAgEKAgIMAgIOAwIQBAMSBAMUBQQXBgQZBwUbCAUdCQYfCgciCwckDAgmDQgpDgkrEAktEQowEgoyFAs0FQs3" +
  "Fgs5GAw8GQw+GwxBHAxDHgxFHwxIIQxKIwxMJAxPJgxRKAtTKQtVKwtXLQtZLwpbMQpcMgpeNApfNglhOAliOQljOwlkPQllPglm" +
  "QApnQgpoRApoRQppRwtqSQtqSgxrTAxrTQ1sTw1sUQ5sUg5tVA9tVQ9tVxBuWRBuWhFuXBJuXRJuXxNuYRNuYhRuZBVuZRVuZxZu" +
  "aRZuahdubBhubRhubxlucRluchpudBpudRtudxxteBxteh1tfB1tfR5tfx5sgB9sgiBshCBrhSFrhyFriCJqiiJqjCNpjSNpjyRp" +
  "kCVokiVokyZnlSZnlydmmCdmmihlmylknSlknypjoCpjoitioyxhpSxgpi1gqC5fqS5eqy9erTBdrjBcsDFbsTJaszJatDNZtjRY" +
  "tzVXuTVWujZVvDdUvThTvzlSwDpRwTpQwztPxDxOxj1Nxz5MyD9LykBKy0FJzEJIzkNHz0RG0EVF0kZE00dD1EhC1UpB10s/2Ew+" +
  "2U092k4821A73VE63lI431M34FU24VY14lc041kz5Fox5Vww5l0v514u6GAt6WEr6mMq62Qp62Yo7Gcm7Wkl7mok72wj724h8G8g" +
  "8XEf8XMd8nQc83Yb83gZ9HkY9XsX9X0V9n4U9oAT94IS94QQ+IUP+IcO+IkM+YsL+YwK+Y4J+pAI+pIH+pQH+5YG+5cG+5kG+5sG" +
  "+50H/J8H/KEI/KMJ/KUK/KYM/KgN/KoP/KwR/K4S/LAU/LIW/LQY+7Ya+7gd+7of+7wh+74j+sAm+sIo+sQq+sYt+ccv+cky+cs1" +
  "+M03+M8699E999NA9tVD9tdG9dlJ9dtM9N1P9N9T9OFW8+Na8+Vd8uZh8uhl8upp8ext8e1x8e918fF58vJ98vSC8/WG8/aK9PiO" +
  "9fmS9vqW+Pua+fyd+v2h/P+k"
);
const TRUTH_COLOUR = "#35d0ff";
const LEVEL_COLOUR = "#ffffff";
const BOX_COLOUR = "#ffd23f";
const HALO = "rgba(0, 0, 0, 0.65)";

/* The heat map as an image of one pixel per pixel of the grid; thresholds 0 and 100 are the ends of the scale. With
   `fading`, small values are clear. */
function heatImage(swept, thresholds, { opacity, fading }, size) {
  const image = new ImageData(size, size);
  const low = thresholds[0];
  const range = thresholds[LEVELS - 1] - low;
  for (let i = 0; i < swept.normal.length; i++) {
    const value = Math.min(Math.max((swept.normal[i] - low) / range, 0), 1);
    const at = 3 * Math.round(255 * value);
    image.data[4 * i] = COLOURS[at];
    image.data[4 * i + 1] = COLOURS[at + 1];
    image.data[4 * i + 2] = COLOURS[at + 2];
    image.data[4 * i + 3] = swept.seen[i] ? Math.round(255 * opacity * (fading ? value : 1)) : 0;
  }
  return image;
}

/* The edges between pixels above k and the others, in units of pixels; runs of edges become one line. */
function outline(values, k, size) {
  const path = new Path2D();
  const at = (y, x) => y >= 0 && x >= 0 && y < size && x < size && values[y * size + x] > k;
  for (let line = 0; line <= size; line++) {
    let row = -1;
    let column = -1;
    for (let i = 0; i <= size; i++) {
      const across = i < size && at(line - 1, i) !== at(line, i);
      if (across && row < 0) row = i;
      if (!across && row >= 0) {
        path.moveTo(row, line);
        path.lineTo(i, line);
        row = -1;
      }
      const down = i < size && at(i, line - 1) !== at(i, line);
      if (down && column < 0) column = i;
      if (!down && column >= 0) {
        path.moveTo(line, column);
        path.lineTo(line, i);
        column = -1;
      }
    }
  }
  return path;
}

function strokeOutline(context, path, colour, width) {
  context.lineCap = "square";
  context.strokeStyle = HALO;
  context.lineWidth = width * 2.2;
  context.stroke(path);
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.stroke(path);
}

/* A path in pixels of the grid as one in pixels of the canvas: lines are equally wide in both directions. */
function enlarged(path, scaleX, scaleY) {
  const large = new Path2D();
  large.addPath(path, new DOMMatrix([scaleX, 0, 0, scaleY, 0, 0]));
  return large;
}

/* A hit is a ring with a dot, a miss a cross: told apart without colours. Where nobody knows (hit is null), a ring. */
function drawMaximum(context, x, y, hit, unit) {
  const r = 6 * unit;
  const shape = new Path2D();
  if (hit !== false) {
    shape.arc(x, y, r, 0, 2 * Math.PI);
    shape.moveTo(x + unit, y);
    shape.arc(x, y, unit, 0, 2 * Math.PI);
  } else {
    shape.moveTo(x - r, y - r);
    shape.lineTo(x + r, y + r);
    shape.moveTo(x - r, y + r);
    shape.lineTo(x + r, y - r);
  }
  context.lineCap = "round";
  context.strokeStyle = "rgba(0, 0, 0, 0.8)";
  context.lineWidth = 4.5 * unit;
  context.stroke(shape);
  context.strokeStyle = hit === null ? BOX_COLOUR : hit ? "#7dff8a" : "#ff8f6b";
  context.lineWidth = 2 * unit;
  context.stroke(shape);
}

/* Draws `scene` {image, swept, thresholds, truth, boxes, argmax, hit} at level k on a canvas of any shape; `boxes` are
   lists of x0, y0, x1, y1 in fractions; look.unit is the width of a thin line. Returns the pixels of B(tau) it outlined. */
function drawOverlay(canvas, scene, k, look, size, scratch) {
  const { width, height } = canvas;
  const context = canvas.getContext("2d");
  const unit = look.unit ?? Math.min(2, Math.max(width, height) / size); // large pictures have thin lines
  const large = (path) => enlarged(path, width / size, height / size);
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.imageSmoothingQuality = "high";
  context.fillStyle = "#20242b";
  context.fillRect(0, 0, width, height);
  if (scene.image) context.drawImage(scene.image, 0, 0, width, height);
  if (look.heat) {
    scratch.putImageData(heatImage(scene.swept, scene.thresholds, look, size), 0, 0);
    context.drawImage(scratch.canvas, 0, 0, width, height);
  }
  let area = 0;
  for (const level of scene.swept.levels) if (level > k) area++;
  if (look.truth) strokeOutline(context, large(scene.truth), TRUTH_COLOUR, 1.8 * unit);
  if (look.contour) {
    strokeOutline(context, large(outline(scene.swept.levels, k, size)), LEVEL_COLOUR, 1.4 * unit);
  }
  if (look.boxes) {
    const path = new Path2D();
    for (const [x0, y0, x1, y1] of scene.boxes) path.rect(x0 * width, y0 * height, (x1 - x0) * width, (y1 - y0) * height);
    strokeOutline(context, path, BOX_COLOUR, unit);
  }
  if (look.maximum && !scene.swept.flat) {
    const x = (((scene.argmax % size) + 0.5) * width) / size;
    const y = ((Math.floor(scene.argmax / size) + 0.5) * height) / size;
    drawMaximum(context, x, y, scene.hit, unit);
  }
  return area;
}
