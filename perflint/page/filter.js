"use strict";
// Shows the findings that hold all words of the search field; without this script all of them are shown.
(() => {
  const field = document.getElementById("filter");
  const count = document.getElementById("shown");
  const flaws = [...document.querySelectorAll(".flaw")];
  const blocks = [...document.querySelectorAll(".block")];
  const apply = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const flaw of flaws) {
      flaw.hidden = !words.every((word) => flaw.dataset.search.includes(word));
      shown += flaw.hidden ? 0 : 1;
    }
    for (const block of blocks) block.hidden = !block.querySelector(".flaw:not([hidden])");
    count.textContent = words.length ? `${shown} of ${flaws.length} shown` : "";
  };
  document.querySelector(".filter").hidden = false;
  field.addEventListener("input", apply);
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { field.value = ""; apply(); }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (document.activeElement !== field) { event.preventDefault(); field.focus(); }
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a");
    if (!link) return;
    const leadsToHidden = link.hash.length > 1 && document.getElementById(link.hash.slice(1))?.hidden;
    if (link.dataset.filter === undefined && !leadsToHidden) return;
    field.value = link.dataset.filter ?? "";
    apply();
  });
  document.getElementById("open").addEventListener("click", (event) => {
    const open = event.target.getAttribute("aria-pressed") !== "true";
    event.target.setAttribute("aria-pressed", String(open));
    for (const details of document.querySelectorAll(".flaw:not([hidden]) details")) details.open = open;
  });
})();
