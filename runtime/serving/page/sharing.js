/* What leaves the page: the answers as JSON, and an overlay as PNG with what it is worth written below. */

const NUMBERS = (value) => (Number.isFinite(value) ? value : null);

/* The answers of the models shown, with masks' areas and boxes at the threshold shown. */
function answersText(view) {
  const content = {
    notice: document.getElementById("notice").textContent,
    server: document.getElementById("server").textContent,
    file: view.question.file.name,
    tau: view.level / 100,
    answers: view.answers.map((answer) => answerContent(answer, view.level)),
  };
  return visibleJson(JSON.stringify(content, null, 1));
}

function answerContent(answer, level) {
  const { name, parameters, platform } = answer.model;
  return {
    model: name,
    version: answer.version,
    weights: parameters.weights,
    weights_notice: parameters.weights_notice,
    digest: parameters.digest,
    engine: platform,
    prompt_set: answer.set,
    height_width: answer.size,
    frame: answer.frame,
    findings: answer.findings.map((finding, i) => findingContent(answer, finding, i, level)),
  };
}

function findingContent(answer, finding, i, level) {
  const { swept, argmax } = answer.scene(i);
  return {
    finding,
    logit: NUMBERS(answer.logits[i]),
    logit_negative: NUMBERS(answer.negatives[i]),
    probability_sigmoid: NUMBERS(answer.sigmoid[i]),
    probability_pair: NUMBERS(answer.pair[i]),
    degenerate_map: swept.flat,
    maximum_y_x: swept.flat ? null : [Math.floor(argmax / GRID), argmax % GRID].map((at) => (at + 0.5) / GRID),
    mask_pixels: swept.levels.reduce((sum, passes) => sum + (passes > level ? 1 : 0), 0),
    boxes_x0_y0_x1_y1_peak: answer.boxes(i, level),
  };
}

async function copyText(text, say) {
  try {
    await navigator.clipboard.writeText(text);
    say("The JSON is in the clipboard.", true);
  } catch (error) {
    const dialog = document.getElementById("text-dialog");
    const area = document.getElementById("text");
    area.value = text;
    dialog.showModal();
    area.focus();
    area.select();
  }
}

/* Saves the overlay as shown and returns the file's name. */
async function savePicture(view, answer, place) {
  const overlay = canvasFor(answer.size, 1024);
  const scene = { ...answer.scene(place), image: view.picture, boxes: answer.boxes(place, view.level) };
  const area = drawOverlay(overlay, scene, view.level, view.look(), GRID, view.scratch);
  const finding = answer.findings[place];
  const tau = (view.level / 100).toFixed(2);
  const { name, parameters } = answer.model;
  const score = `${SCORES[view.kind].name} ${scoreText(answer, place, view.kind)}`;
  const share = ((100 * area) / GRID ** 2).toFixed(1);
  const lines = [
    `${name} · ${finding} · ${score} · τ ${tau} · B(τ) ${share} % of the image`,
    `Weights: ${parameters.weights_notice}`,
    document.getElementById("notice").textContent,
  ];
  const blob = await new Promise((done) => withCaption(overlay, lines).toBlob(done, "image/png"));
  if (!blob) throw new Error("the browser made no picture");
  const file = `${name}-${finding}-tau${tau}.png`.replace(/[^\w.-]+/g, "_");
  const link = make("a", { href: URL.createObjectURL(blob), download: file });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  return file;
}

/* The picture above lines of text, broken where they do not fit. */
function withCaption(picture, lines) {
  const size = 20;
  const margin = 14;
  const canvas = make("canvas", { width: Math.max(picture.width, 560), height: 1 });
  let context = canvas.getContext("2d");
  const font = `${size}px system-ui, "Noto Sans", "DejaVu Sans", sans-serif`;
  context.font = font;
  const broken = lines.map(visible).flatMap((line) => brokenLine(context, line, canvas.width - 2 * margin));
  canvas.height = picture.height + 2 * margin + broken.length * size * 1.4;
  context = canvas.getContext("2d");
  context.fillStyle = "#14181d";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(picture, (canvas.width - picture.width) / 2, 0);
  context.fillStyle = "#f2f4f7";
  context.font = font;
  context.textBaseline = "top";
  broken.forEach((line, i) => context.fillText(line, margin, picture.height + margin + i * size * 1.4));
  return canvas;
}

function brokenLine(context, text, width) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
    if (lines.at(-1) && context.measureText(longer).width > width) lines.push(word);
    else lines[lines.length - 1] = longer;
  }
  return lines;
}
