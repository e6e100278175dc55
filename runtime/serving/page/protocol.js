/* The Open Inference Protocol with raw bytes (binary extension), asked of the server this page came from. */

const ROOT = document.querySelector('meta[name="root-path"]').content; // before every path, behind a proxy
const HEADER_LENGTH = "Inference-Header-Content-Length";
const READERS = {
  FP32: (view, at) => view.getFloat32(at, true),
  FP64: (view, at) => view.getFloat64(at, true),
  INT32: (view, at) => view.getInt32(at, true),
};
const WIDTHS = { FP32: 4, FP64: 8, INT32: 4 };

/* What the server refused, in its own sentence; `status` 0: it could not be reached. */
class Refused extends Error {
  constructor(sentence, status) {
    super(sentence);
    this.status = status;
  }

  /* Whether the same question may be answered later. */
  get passing() {
    return [0, 429, 503, 504].includes(this.status);
  }
}

class Server {
  constructor() {
    this.token = "";
  }

  async ask(path, options = {}) {
    const headers = { ...options.headers };
    if (this.token) headers.Authorization = `Bearer ${this.token}`;
    let response;
    try {
      response = await fetch(ROOT + path, { cache: "no-store", credentials: "omit", ...options, headers });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Refused("The server cannot be reached, or the file is larger than it takes.", 0);
    }
    if (!response.ok) throw new Refused(await sentenceOf(response), response.status);
    return response;
  }

  /* Metadata of every model, in the order of the server. */
  async models() {
    const index = await (await this.ask("/v2/repository/index", { method: "POST", body: "{}" })).json();
    const path = (name) => `/v2/models/${encodeURIComponent(name)}`;
    return Promise.all(index.map(async ({ name }) => (await this.ask(path(name))).json()));
  }

  async about() {
    return (await this.ask("/v2")).json();
  }

  /* Tensors by name, each {shape, data}: an array of numbers, or of texts and bytes. `question`: {set, prompts}. */
  async infer(model, bytes, question, outputs, signal) {
    const image = { name: "image", datatype: "BYTES", shape: [1], parameters: { binary_data_size: bytes.length + 4 } };
    const content = { inputs: [image], parameters: { binary_data_output: true } };
    if (question.set) content.parameters.prompt_set = question.set;
    if (question.prompts) {
      const data = [JSON.stringify(question.prompts)];
      content.inputs.push({ name: "prompts", datatype: "BYTES", shape: [1], data });
    }
    content.outputs = outputs.map((name) => ({ name, parameters: { binary_data: name !== "findings" } }));
    const head = new TextEncoder().encode(JSON.stringify(content));
    const length = new DataView(new ArrayBuffer(4));
    length.setUint32(0, bytes.length, true);
    const response = await this.ask(`/v2/models/${encodeURIComponent(model)}/infer`, {
      method: "POST",
      body: new Blob([head, length, bytes]),
      headers: { "Content-Type": "application/octet-stream", [HEADER_LENGTH]: String(head.length) },
      signal,
    });
    return tensorsOf(await response.arrayBuffer(), response.headers.get(HEADER_LENGTH));
  }
}

async function sentenceOf(response) {
  try {
    const { error } = await response.json();
    if (typeof error === "string" && error) return error;
  } catch (error) {
    /* not the server's own words: something between it and this page */
  }
  return `The server answered with status ${response.status}.`;
}

/* The head of an answer and its tensors. */
function tensorsOf(buffer, headLength) {
  const cut = headLength === null ? buffer.byteLength : Number(headLength);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 0, cut)));
  const tensors = {};
  let at = cut;
  for (const { name, datatype, shape, data, parameters } of head.outputs) {
    const size = parameters?.binary_data_size;
    if (size === undefined) {
      tensors[name] = { shape, data };
      continue;
    }
    const view = new DataView(buffer, at, size);
    tensors[name] = { shape, data: datatype === "BYTES" ? filesOf(view) : numbersOf(view, datatype) };
    at += size;
  }
  return { head, tensors };
}

function numbersOf(view, datatype) {
  const count = view.byteLength / WIDTHS[datatype];
  const read = READERS[datatype];
  const kind = datatype === "FP32" ? Float32Array : Array;
  return kind.from({ length: count }, (_, i) => read(view, i * WIDTHS[datatype]));
}

/* Each element is its length, four bytes, and then its bytes. */
function filesOf(view) {
  const files = [];
  for (let at = 0; at < view.byteLength; ) {
    const length = view.getUint32(at, true);
    files.push(new Uint8Array(view.buffer, view.byteOffset + at + 4, length));
    at += 4 + length;
  }
  return files;
}
