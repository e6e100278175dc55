/* Elements and their texts. Names of models, findings and files come from others: what is shown of a text is visible. */

/* The signs that engines/visible_text.py shows: those that a page would obey, or that have no width. */
const HIDDEN =
  /[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;
const SHOWN = new Set(["textContent", "title", "placeholder", "alt", "aria-label", "aria-valuetext"]);

/* The text with hidden signs as Python writes them (\x1b, \u202e). */
function visible(text) {
  return String(text ?? "").replace(HIDDEN, (sign) => {
    const code = sign.codePointAt(0);
    const [mark, width] = code < 0x100 ? ["\\x", 2] : code < 0x10000 ? ["\\u", 4] : ["\\U", 8];
    return mark + code.toString(16).padStart(width, "0");
  });
}

/* JSON of the same values whose text holds no hidden sign: JSON has escapes of its own for them. */
function visibleJson(text) {
  const escape = (_, at, sign) => `\\u${sign.charCodeAt(at).toString(16).padStart(4, "0")}`;
  return text.replace(HIDDEN, (sign) => sign.replace(/[^]/g, escape));
}

/* Sets what an element shows, or one of its attributes that are read to people. */
function write(element, text, name = "textContent") {
  if (name.startsWith("aria-") || name === "role") element.setAttribute(name, visible(text));
  else element[name] = visible(text);
}

/* An element with properties, attributes (aria-*, role) and children. */
function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (SHOWN.has(key)) write(element, value, key);
    else if (key.startsWith("aria-") || key === "role") element.setAttribute(key, value);
    else element[key] = value;
  }
  element.append(...children.map((child) => (typeof child === "string" ? visible(child) : child)));
  return element;
}

/* An option that shows a text and stands for a value. */
function option(text, value) {
  return new Option(visible(text), value);
}
