/* Connects the parts. What is said is read aloud, and shown where nothing else on the page shows it. */

const server = new Server();
const status = document.getElementById("status");

function say(text, shown = false) {
  write(status, text);
  status.classList.toggle("hidden", !shown);
  clearTimeout(say.timer);
  if (shown) say.timer = setTimeout(() => status.classList.add("hidden"), 6000);
}

const question = new Question({
  changed: () => results.restart(),
  chosen: () => results.complete(),
  say: (text, shown = true) => say(text, shown),
});
const results = new Results(server, question, say);

/* The lines of weights that are no published ones, with the models they concern. */
function showStamps(models) {
  const concerned = new Map();
  for (const { name, parameters } of models) {
    if (parameters.weights === "published") continue;
    concerned.set(parameters.weights_notice, [...(concerned.get(parameters.weights_notice) ?? []), name]);
  }
  const lines = [...concerned].map(([notice, names]) => make("li", { textContent: `${names.join(", ")}: ${notice}` }));
  document.getElementById("stamps").replaceChildren(...lines);
}

/* Asks what is served; a token is asked for when the server wants one. */
async function connect() {
  const list = document.getElementById("models");
  const form = document.getElementById("token-form");
  try {
    const [about, models] = await Promise.all([server.about(), server.models()]);
    write(document.getElementById("server"), `${about.name} ${about.version}`);
    form.hidden = true;
    question.show(models);
    showStamps(models);
    say(`${models.length} ${models.length === 1 ? "model is" : "models are"} served.`);
    if (question.ready) results.restart();
  } catch (error) {
    if (error.status === 401) {
      form.hidden = false;
      write(document.getElementById("token-reason"), error.message);
      list.replaceChildren(make("p", { className: "quiet", textContent: "Shown after the token is given." }));
      document.getElementById("token").focus();
      return;
    }
    const again = make("button", { type: "button", textContent: "Try again" });
    again.addEventListener("click", connect);
    list.replaceChildren(make("p", { className: "error", role: "alert", textContent: error.message }), again);
  }
}

document.getElementById("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const field = document.getElementById("token");
  server.token = field.value.trim();
  field.value = "";
  connect();
});
document.getElementById("text-close").addEventListener("click", () => document.getElementById("text-dialog").close());
startTheme();
connect();
