"use strict";
(() => {
  const facts = JSON.parse(document.getElementById("facts").textContent);
  const graphs = [...document.querySelectorAll(".graph")];
  const panel = document.querySelector("aside dl");
  const search = document.getElementById("search");
  const count = document.getElementById("count");
  const choice = document.getElementById("choice");
  const views = graphs.map((graph) => new View(graph));
  let shown = 0, hits = [], hit = -1;

  /** What of a drawing is in its window: the part of the SVG that is seen. */
  function View(graph) {
    const svg = graph.querySelector("svg");
    const whole = svg.viewBox.baseVal;
    const full = { x: whole.x, y: whole.y, width: whole.width, height: whole.height };
    let box = { ...full }, held = null;
    svg.removeAttribute("width");
    svg.removeAttribute("height");
    svg.setAttribute("preserveAspectRatio", "xMidYMin meet");

    const show = () => svg.setAttribute("viewBox", `${box.x} ${box.y} ${box.width} ${box.height}`);
    const size = () => ({ width: graph.clientWidth || 800, height: graph.clientHeight || 600 });
    this.fit = () => { box = { ...full }; show(); };
    this.start = () => { // readable, at the top
      const window = size();
      box.width = Math.min(Math.max(full.width, window.width), window.width * 1.4);
      box.height = box.width * window.height / window.width;
      box.x = full.x + (full.width - box.width) / 2;
      box.y = full.y;
      show();
    };
    this.zoom = (factor, x, y) => {
      x = x ?? box.x + box.width / 2;
      y = y ?? box.y + box.height / 2;
      box = { x: x - (x - box.x) * factor, y: y - (y - box.y) * factor, width: box.width * factor, height: box.height * factor };
      show();
    };
    this.center = (rect) => {
      const window = size();
      box.width = Math.min(box.width, window.width * 1.4);
      box.height = box.width * window.height / window.width;
      box.x = +rect.getAttribute("x") + rect.getAttribute("width") / 2 - box.width / 2;
      box.y = +rect.getAttribute("y") + 20 - box.height / 2;
      show();
    };
    const place = (event) => {
      const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
      return [point.x, point.y];
    };
    svg.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(Math.exp(event.deltaY * 0.0015), ...place(event));
    }, { passive: false });
    svg.addEventListener("pointerdown", (event) => { held = place(event); });
    svg.addEventListener("pointermove", (event) => {
      if (!held || !event.buttons) { held = null; return; }
      const [x, y] = place(event);
      box.x -= x - held[0];
      box.y -= y - held[1];
      show();
    });
    svg.addEventListener("click", (event) => {
      const chosen = event.target.closest(".box");
      if (chosen) { choose(chosen); }
    });
  }

  function boxes() { return [...graphs[shown].querySelectorAll(".box")]; }

  function choose(box) {
    document.querySelectorAll(".chosen").forEach((other) => other.classList.remove("chosen"));
    box.classList.add("chosen");
    panel.replaceChildren(...facts[shown][+box.dataset.number].flatMap(([name, text]) => {
      const term = document.createElement("dt"), description = document.createElement("dd");
      term.textContent = name;
      description.textContent = text;
      return [term, description];
    }));
  }

  function find() {
    const text = search.value.trim().toLowerCase();
    hits = text ? boxes().filter((box) => facts[shown][+box.dataset.number]
      .some(([, value]) => value.toLowerCase().includes(text))) : [];
    hit = -1;
    boxes().forEach((box) => box.classList.remove("found"));
    hits.forEach((box) => box.classList.add("found"));
    graphs[shown].querySelector(".boxes").classList.toggle("searched", hits.length > 0);
    count.textContent = text ? `${hits.length} found` : "";
  }

  function next(step) {
    if (!hits.length) { return; }
    hit = (hit + step + hits.length) % hits.length;
    choose(hits[hit]);
    views[shown].center(hits[hit].querySelector("rect"));
    count.textContent = `${hit + 1} of ${hits.length}`;
  }

  function show(number) {
    shown = number;
    graphs.forEach((graph, place) => graph.classList.toggle("shown", place === number));
    views[number].start();
    find();
  }

  /** A picture over time: the wheel stretches it, and dragging moves it. */
  function overTime(part) {
    const svg = part.querySelector("svg"), span = part.querySelector(".span");
    const { width: whole, height } = svg.viewBox.baseVal;
    let from = 0, width = whole, held = null;
    const at = (event) => from + (event.clientX - svg.getBoundingClientRect().left) / svg.clientWidth * width;
    const show = () => {
      width = Math.min(whole, Math.max(whole * 1e-4, width));
      from = Math.min(whole - width, Math.max(0, from));
      svg.setAttribute("viewBox", `${from} 0 ${width} ${height}`);
      const ms = (place) => (1e3 * svg.dataset.seconds * place / whole).toFixed(4);
      span.textContent = `${ms(from)} to ${ms(from + width)} ms`;
    };
    svg.addEventListener("wheel", (event) => {
      event.preventDefault();
      const middle = at(event), factor = Math.min(whole / width, Math.exp(event.deltaY * 0.0015));
      width *= factor;
      from = middle - (middle - from) * factor;
      show();
    }, { passive: false });
    svg.addEventListener("pointerdown", (event) => { held = at(event); });
    svg.addEventListener("pointermove", (event) => {
      if (held === null || !event.buttons) { held = null; return; }
      from -= at(event) - held;
      show();
    });
    show();
  }

  document.querySelectorAll(".time").forEach(overTime);
  search.addEventListener("input", find);
  search.addEventListener("keydown", (event) => { if (event.key === "Enter") { next(event.shiftKey ? -1 : 1); } });
  choice.addEventListener("change", () => show(choice.selectedIndex));
  document.getElementById("larger").addEventListener("click", () => views[shown].zoom(0.8));
  document.getElementById("smaller").addEventListener("click", () => views[shown].zoom(1.25));
  document.getElementById("fit").addEventListener("click", () => views[shown].fit());
  const asked = new URLSearchParams(location.hash.slice(1)); // page.html#graph=1&find=conv1
  choice.selectedIndex = Math.min(graphs.length - 1, Math.max(0, +asked.get("graph") || 0));
  search.value = asked.get("find") ?? "";
  show(choice.selectedIndex);
  next(1);
})();
