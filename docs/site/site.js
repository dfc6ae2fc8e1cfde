// Names for what the theme leaves without: its search, the menus of sections, the buttons beside code, and tables wider
// than the page, which the keyboard can then scroll.
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
  const reach = () => {
    for (const [place, one] of [...document.querySelectorAll(".md-typeset__scrollwrap")].entries()) {
      const wide = one.scrollWidth > one.clientWidth;
      if (wide === one.hasAttribute("tabindex")) continue;
      if (wide) {
        one.tabIndex = 0;
        one.setAttribute("role", "region");
        name(one, `Table ${place + 1}`);
      } else for (const attribute of ["tabindex", "role", "aria-label"]) one.removeAttribute(attribute);
    }
  };
  const all = () => { nameAll(); reach(); };
  addEventListener("resize", reach);
  addEventListener("load", reach);
  new MutationObserver(all).observe(document.documentElement, { childList: true, subtree: true });
  all();
})();
