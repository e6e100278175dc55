/* The entry whose section began last above the middle of the window is marked in the table of contents. */
function startContents() {
  const links = [...document.querySelectorAll("#contents a")];
  const targets = links.map((link) => document.getElementById(link.hash.slice(1)));
  let waiting = 0;
  const mark = () => {
    waiting = 0;
    const line = window.innerHeight / 3;
    const current = targets.findLastIndex((target) => target && target.getBoundingClientRect().top < line);
    links.forEach((link, i) => {
      if (i === current) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    });
  };
  window.addEventListener("scroll", () => (waiting ||= requestAnimationFrame(mark)), { passive: true });
  const narrow = window.matchMedia("(max-width: 70rem)");
  const fold = () => document.getElementById("contents").toggleAttribute("open", !narrow.matches);
  narrow.addEventListener("change", fold);
  fold();
  mark();
}
