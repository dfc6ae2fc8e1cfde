// Names for what the theme leaves without: its search, the menus of sections and the buttons beside code.
(() => {
  "use strict";
  const name = (element, text) => {
    if (element.getAttribute("aria-label") === text) return;
    element.removeAttribute("aria-labelledby");
    element.setAttribute("aria-label", text);
  };
  const nameAll = () => {
    for (const one of document.querySelectorAll(".md-search[role=dialog]")) name(one, "Search");
    for (const [place, one] of [...document.querySelectorAll("nav.md-code__nav")].entries()) name(one, `Code ${place + 1}`);
    for (const one of document.querySelectorAll("nav.md-nav[data-md-level='1']")) {
      const title = one.querySelector(".md-nav__title");
      if (title && title.textContent.trim()) name(one, `Pages of ${title.textContent.trim()}`);
    }
  };
  new MutationObserver(nameAll).observe(document.documentElement, { childList: true, subtree: true });
  nameAll();
})();
