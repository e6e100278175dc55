/* What is asked: a file, of which models, with which prompts. Calls `changed` when the answers are no longer those to
   the question, and `chosen` when other models are ticked. */

const OWN = "own texts";
const AT_ONCE = 4; // models that are ticked from the start; more take long on a CPU

class Question {
  constructor({ changed, chosen, say }) {
    this.changed = changed;
    this.chosen = chosen;
    this.say = say;
    this.file = null;
    this.bytes = null;
    this.models = [];
    this.list = document.getElementById("models");
    this.set = document.getElementById("set");
    this.texts = document.getElementById("texts");
    this.listen();
  }

  listen() {
    const input = document.getElementById("file");
    input.addEventListener("change", () => {
      this.take(input.files);
      input.value = ""; // the same file may be chosen again
    });
    const drop = document.getElementById("drop");
    const over = (event) => {
      if (![...event.dataTransfer.types].includes("Files")) return;
      event.preventDefault();
      drop.classList.add("over");
    };
    window.addEventListener("dragenter", over);
    window.addEventListener("dragover", over);
    window.addEventListener("dragleave", (event) => {
      if (!event.relatedTarget) drop.classList.remove("over");
    });
    window.addEventListener("drop", (event) => {
      event.preventDefault();
      drop.classList.remove("over");
      this.take(event.dataTransfer.files);
    });
    window.addEventListener("paste", (event) => {
      if (event.clipboardData.files.length) this.take(event.clipboardData.files);
    });
    this.list.addEventListener("change", () => this.chosen());
    this.set.addEventListener("change", () => this.choseSet());
    document.getElementById("question").addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.ready) this.changed();
      else this.say(this.bytes ? "Write at least one text." : "Choose a radiograph first.");
    });
  }

  async take(files) {
    if (!files.length) return;
    const file = files[0];
    try {
      this.bytes = new Uint8Array(await file.arrayBuffer());
    } catch (error) {
      this.say(`${file.name} cannot be read; is it a folder?`, true);
      return;
    }
    this.file = file;
    write(document.getElementById("file-name"), file.name);
    write(document.getElementById("file-help"), `${sizeText(file.size)} · drop or choose another`);
    document.getElementById("drop").classList.add("full");
    if (files.length > 1) this.say(`One radiograph at a time: ${file.name} was taken.`);
    if (this.ready) this.changed();
    else this.say("Write at least one text and press Ask.");
  }

  show(models) {
    this.models = models;
    const boxes = models.map((model, i) => {
      const { parameters, name } = model;
      const box = make("input", { type: "checkbox", value: name, checked: models.length <= AT_ONCE || i < 1 });
      const facts = `${parameters.grid.join(" × ")} map · ${model.platform}`;
      const about = make("span", { className: "about", textContent: facts });
      const kind = parameters.weights;
      const stamp = kind === "published" ? [] : [make("span", { className: "kind", textContent: `${kind} weights` })];
      return make("label", { className: "model-choice" }, box, make("b", { textContent: name }), ...stamp, about);
    });
    this.list.replaceChildren(...boxes);
    this.fillSets();
  }

  fillSets() {
    const names = new Set(this.models.flatMap((model) => Object.keys(model.parameters.prompt_sets)));
    const options = [option("Each model's own default", "")];
    for (const name of [...names].sort()) {
      const having = this.models.filter((model) => name in model.parameters.prompt_sets);
      const count = Math.max(...having.map((model) => model.parameters.prompt_sets[name].length));
      const share = having.length === this.models.length ? "" : `, ${having.length} of ${this.models.length} models`;
      options.push(option(`${name} (${count} findings${share})`, name));
    }
    if (this.models.some((model) => model.parameters.own_prompts)) options.push(option("Own texts …", OWN));
    this.set.replaceChildren(...options);
  }

  choseSet() {
    const own = this.set.value === OWN;
    document.getElementById("own").hidden = !own;
    if (own) this.texts.focus();
    else if (this.bytes) this.changed();
  }

  get ready() {
    return this.bytes !== null && (this.set.value !== OWN || Object.keys(this.prompts).length > 0);
  }

  get ticked() {
    const names = new Set([...this.list.querySelectorAll("input:checked")].map((box) => box.value));
    return this.models.filter((model) => names.has(model.name));
  }

  /* What the server takes beside the file: {set} or {prompts}, neither for the default. */
  get words() {
    if (this.set.value === OWN) return { prompts: this.prompts };
    return this.set.value ? { set: this.set.value } : {};
  }

  /* Own texts as a prompt file has them: a line is a finding of its own, named as its text. */
  get prompts() {
    const found = Object.create(null);
    for (const line of this.texts.value.split("\n")) {
      const [present, absent] = line.split("|").map((part) => part.trim());
      if (!present) continue;
      found[present] ??= { positive: [present] };
      if (absent) found[present].negative = [...(found[present].negative ?? []), absent];
    }
    return found;
  }
}

function sizeText(bytes) {
  const mebi = bytes / 2 ** 20;
  return mebi >= 0.95 ? `${mebi.toFixed(1)} MiB` : `${Math.max(1, Math.round(bytes / 1024))} KiB`;
}
