"use strict";
(() => {
  const json = (id) => JSON.parse(document.getElementById(id).textContent);
  const charts = json("chart-data"), darkColours = json("dark-colours"), record = json("run-record");
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const element = (tag, text, parent) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (parent) parent.append(made);
    return made;
  };

  // Charts. Colours are replaced in the description, before the data are put in: names are never touched.
  const tip = document.getElementById("tip");
  function showTip(_handler, event, _item, value) {
    if (value === null || value === undefined || value === "") { tip.hidden = true; return; }
    tip.replaceChildren();
    const list = element("dl", undefined, tip);
    for (const [key, text] of Object.entries(value)) { element("dt", key, list); element("dd", text, list); }
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 6))}px`;
    tip.style.top = `${Math.max(4, Math.min(event.clientY + 16, innerHeight - box.height - 6))}px`;
  }
  async function draw(chart) {
    let text = JSON.stringify(chart.spec);
    if (prefersDark.matches) for (const [light, dark] of Object.entries(darkColours)) text = text.replaceAll(light, dark);
    const spec = JSON.parse(text);
    const rows = chart.rows.map((row) => Object.fromEntries(chart.columns.map((name, at) => [name, row[at]])));
    spec.data.find((data) => data.name === "table").values = rows;
    const box = document.getElementById(`chart-${chart.name}`);
    chart.drawn?.finalize();
    chart.drawn = await vegaEmbed(box, spec, {
      mode: "vega", renderer: "svg", actions: false, defaultStyle: false, tooltip: showTip,
      loader: { load: () => Promise.reject(new Error("a report loads nothing")) },
    });
  }
  async function drawAll() {
    for (const chart of charts) {
      if (document.getElementById(`chart-${chart.name}`)) await draw(chart);
      await new Promise((done) => setTimeout(done)); // lets the page be scrolled meanwhile
    }
    document.documentElement.dataset.drawn = charts.length;
  }
  prefersDark.addEventListener("change", drawAll);
  // Paper is light. A chart cannot be drawn anew before the printer is handed the page, so its colours are turned back.
  const lightColours = Object.fromEntries(Object.entries(darkColours).map(([light, dark]) => [dark, light]));
  addEventListener("beforeprint", () => {
    document.querySelectorAll("section:not(#provenance) details").forEach((each) => { each.open = true; });
    for (const each of document.querySelectorAll(".drawing [fill], .drawing [stroke]")) {
      for (const key of ["fill", "stroke"]) {
        const light = lightColours[each.getAttribute(key)];
        if (light && prefersDark.matches) each.setAttribute(key, light);
      }
    }
  });
  addEventListener("afterprint", () => { if (prefersDark.matches) drawAll(); });

  // Files of a chart.
  function save(name, url) {
    const link = element("a");
    link.download = name;
    link.href = url;
    link.click();
  }
  const quoted = (cell) => {
    if (cell === null) return "";
    const text = typeof cell === "string" && /^[=+\-@\t\r]/.test(cell) ? `'${cell}` : String(cell);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  document.querySelectorAll("[data-files] button").forEach((button) => button.addEventListener("click", async () => {
    const name = button.parentElement.dataset.files, kind = button.dataset.kind;
    const chart = charts.find((each) => each.name === name);
    if (kind === "csv") {
      const text = [chart.columns, ...chart.rows].map((row) => row.map(quoted).join(",")).join("\n") + "\n";
      save(`${name}.csv`, URL.createObjectURL(new Blob([text], { type: "text/csv" })));
    } else {
      save(`${name}.${kind}`, await chart.drawn.view.toImageURL(kind, 2));
    }
  }));

  // Tables. On a phone a long one is folded.
  if (innerWidth <= 760) document.querySelectorAll("details[open]").forEach((each) => { each.open = false; });
  document.querySelectorAll("table.sortable th button").forEach((button) => button.addEventListener("click", () => {
    const head = button.parentElement, body = head.closest("table").tBodies[0], at = head.cellIndex;
    const isNumber = head.classList.contains("number");
    const falls = head.ariaSort ? head.ariaSort === "ascending" : isNumber;
    const key = (row) => row.cells[at].dataset.sort ?? row.cells[at].textContent;
    const rows = [...body.rows].map((row) => [isNumber ? parseFloat(key(row)) : key(row), row]);
    const order = ([a], [b]) => isNumber ? (isNaN(a) ? 1 : isNaN(b) ? -1 : a - b) : a.localeCompare(b);
    rows.sort(falls ? (a, b) => order(b, a) : order);
    for (const each of head.parentElement.cells) each.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", falls ? "descending" : "ascending");
    body.append(...rows.map(([, row]) => row));
  }));

  // Provenance: the run's own record, as text.
  function facts(value, parent) {
    if (value === null || typeof value !== "object") { element("span", value === null ? "–" : String(value), parent); return; }
    if (Array.isArray(value) && value.every((each) => each === null || typeof each !== "object")) {
      element("span", value.length ? value.join(", ") : "none", parent); return;
    }
    const list = element("dl", undefined, parent);
    list.className = "facts";
    for (const [key, each] of Object.entries(value)) {
      element("dt", Array.isArray(value) ? `${Number(key) + 1}` : key.replaceAll("_", " "), list);
      facts(each, element("dd", undefined, list));
    }
  }
  if (record) {
    const box = document.getElementById("run-shown");
    box.replaceChildren();
    box.className = "box";
    element("h3", "Run it again", box);
    element("pre", record.command, box);
    const { id, name, start, source, overrides, git, seed, config_digest, bringup } = record;
    const commit = git ? `${git.commit}${git.dirty ? ", with changes that are not committed" : ""}` : "not in a repository";
    facts({ run: id, experiment: name, start, source: source ?? "virtual and hardware", changed: overrides, seed, commit, config_digest, bringup }, box);
    for (const key of ["config", "versions", "machine", "steps"]) {
      if (!record[key]) continue;
      const more = element("details", undefined, box);
      element("summary", { config: "Whole configuration", versions: "Versions", machine: "Machine", steps: "Steps" }[key], more);
      facts(record[key], more);
    }
    document.querySelector(".kicker").textContent += ` · run ${id}`;
  }
  drawAll();
})();
