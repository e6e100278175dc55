/* Light, dark, or as the system says. Storage may be refused for a file; the choice then lasts as long as the page. */

function startTheme() {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const shown = () => root.dataset.theme || (dark.matches ? "dark" : "light");
  const label = () => {
    const next = shown() === "dark" ? "light" : "dark";
    button.textContent = next === "dark" ? "Dark" : "Light";
    button.setAttribute("aria-label", `Switch to the ${next} theme`);
  };
  try {
    const stored = localStorage.getItem("xbench-theme");
    if (stored === "dark" || stored === "light") root.dataset.theme = stored;
  } catch (error) {
    /* no storage */
  }
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = shown() === "dark" ? "light" : "dark";
    label();
    try {
      localStorage.setItem("xbench-theme", root.dataset.theme);
    } catch (error) {
      /* no storage */
    }
  });
  dark.addEventListener("change", label);
  label();
}
