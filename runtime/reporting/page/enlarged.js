/* One overlay, large, in a dialog with controls of its own: threshold, opacity of the map, window and level of the
   radiograph, which is shown in its native size and shape where the page holds it so. */
class Enlarged {
  constructor(dialog, painter) {
    this.dialog = dialog;
    this.painter = painter;
    this.canvas = dialog.querySelector("canvas");
    this.control = (name) => dialog.querySelector(`[name="${name}"]`);
    dialog.addEventListener("input", () => this.repaint());
    this.control("actual").addEventListener("change", () => {
      dialog.classList.toggle("actual", this.control("actual").checked);
    });
    dialog.querySelector(".reset").addEventListener("click", () => {
      this.reset();
      this.repaint();
    });
    dialog.querySelector(".close").addEventListener("click", () => dialog.close());
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog) dialog.close();
    });
    dialog.addEventListener("close", () => painter.others.clear());
  }

  value(name) {
    return Number(this.control(name).value);
  }

  reset() {
    this.control("window").value = 256;
    this.control("level").value = 128;
    this.control("own-opacity").value = 100 * this.painter.look().opacity;
  }

  repaint() {
    for (const name of ["window", "level"]) this.dialog.querySelector(`.${name}-value`).textContent = this.value(name);
    this.dialog.querySelector(".opacity-value").textContent = `${this.value("own-opacity")} %`;
    this.dialog.querySelector(".own-tau-value").textContent = (this.value("own-tau") / 100).toFixed(2);
    this.painter.repaint();
  }

  show(overlay) {
    const { data } = this.painter;
    const item = data.cases[overlay.case];
    const title = `${data.models[overlay.model]}: ${item.finding}, case ${item.id}`;
    this.dialog.querySelector("h3").textContent = title;
    this.canvas.setAttribute("aria-label", title);
    this.native = item.image !== null && data.native[item.image];
    this.plain = null;
    this.reset();
    this.control("own-tau").value = this.painter.level ?? overlay.best;
    const values = this.dialog.querySelector(".values");
    const level = () => this.value("own-tau");
    const look = () => ({ ...this.painter.look(), opacity: this.value("own-opacity") / 100 });
    const toned = (picture) => this.toned(picture);
    this.painter.others = new Set([{ figure: this.dialog, overlay, canvas: this.canvas, values, level, look, toned }]);
    this.sized(4 * data.grid, 4 * data.grid);
    this.dialog.querySelector(".source").textContent = item.image === null ? "The radiograph is not available." : "";
    this.dialog.showModal();
    this.repaint();
  }

  sized(width, height) {
    if (this.canvas.width !== width) this.canvas.width = width;
    if (this.canvas.height !== height) this.canvas.height = height;
  }

  /* The radiograph with its window and level: grey values from level - window / 2 on are spread from black to white. */
  toned(picture) {
    if (!picture) return picture;
    const { naturalWidth: width, naturalHeight: height } = picture;
    if (this.native) this.sized(width, height);
    this.dialog.querySelector(".source").textContent = this.native
      ? `Radiograph of ${width} × ${height} pixels`
      : "A small copy of the radiograph, squashed to 224 × 224 pixels: larger ones did not fit into the page";
    const [window, level] = [this.value("window"), this.value("level")];
    if (window === 256 && level === 128) return picture;
    if (!this.plain) {
      const context = make("canvas", { width, height }).getContext("2d", { willReadFrequently: true });
      context.drawImage(picture, 0, 0);
      this.plain = context.getImageData(0, 0, width, height);
      this.shown = context;
    }
    const table = Uint8ClampedArray.from({ length: 256 }, (_, grey) => (255 * (grey - level + window / 2)) / window);
    const image = new ImageData(width, height);
    for (let i = 0; i < image.data.length; i += 4) {
      image.data[i] = image.data[i + 1] = image.data[i + 2] = table[this.plain.data[i]];
      image.data[i + 3] = 255;
    }
    this.shown.putImageData(image, 0, 0);
    return this.shown.canvas;
  }
}
