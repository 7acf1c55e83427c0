"use strict";
(() => {
  const facts = JSON.parse(document.getElementById("facts").textContent);
  const links = JSON.parse(document.getElementById("links").textContent);
  const graphs = [...document.querySelectorAll(".graph")];
  const panel = document.querySelector("aside");
  const search = document.getElementById("search");
  const count = document.getElementById("count");
  const choice = document.getElementById("choice");
  const map = document.querySelector("canvas.map");
  const views = graphs.map((graph) => new View(graph));
  let shown = 0, hits = [], hit = -1;

  /** What of a drawing is in its window: the part of the SVG that is seen. */
  function View(graph) {
    const svg = graph.querySelector("svg");
    const whole = svg.viewBox.baseVal;
    const full = { x: whole.x, y: whole.y, width: whole.width, height: whole.height };
    let box = { ...full }, moved = false;
    const fingers = new Map();
    svg.removeAttribute("width");
    svg.removeAttribute("height");
    svg.setAttribute("preserveAspectRatio", "xMidYMin meet");

    const show = () => {
      svg.setAttribute("viewBox", `${box.x} ${box.y} ${box.width} ${box.height}`);
      if (views?.[shown] === this) { drawWindow(); }
    };
    const size = () => ({ width: graph.clientWidth || 800, height: graph.clientHeight || 600 });
    this.full = full;
    this.window = () => box;
    this.boxes = [...svg.querySelectorAll(".box")];
    this.lines = [...svg.querySelectorAll(".lines path")];
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
    this.moveTo = (x, y) => {
      box.x = x - box.width / 2;
      box.y = y - box.height / 2;
      show();
    };
    this.center = (rect) => {
      const window = size();
      box.width = Math.min(box.width, window.width * 1.4);
      box.height = box.width * window.height / window.width;
      this.moveTo(+rect.getAttribute("x") + rect.getAttribute("width") / 2, +rect.getAttribute("y") + 20);
    };
    const place = (event) => {
      const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
      return [point.x, point.y];
    };
    svg.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(Math.exp(event.deltaY * 0.0015), ...place(event));
    }, { passive: false });
    svg.addEventListener("pointerdown", (event) => {
      fingers.set(event.pointerId, place(event));
      moved = false;
    });
    const release = (event) => fingers.delete(event.pointerId);
    for (const name of ["pointerup", "pointercancel", "pointerleave"]) { svg.addEventListener(name, release); }
    svg.addEventListener("pointermove", (event) => {
      const held = fingers.get(event.pointerId);
      if (!held || !event.buttons) { release(event); return; }
      const [x, y] = place(event);
      const other = [...fingers].find(([id]) => id !== event.pointerId)?.[1];
      if (other) { // two fingers: the distance between them zooms
        const distance = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1]) || 1;
        this.zoom(distance(held, other) / distance([x, y], other), ...other);
        fingers.set(event.pointerId, place(event));
      } else {
        box.x -= x - held[0];
        box.y -= y - held[1];
        show();
      }
      moved = true;
    });
    svg.addEventListener("click", (event) => {
      const chosen = event.target.closest(".box");
      if (chosen) { choose(chosen); } else if (!moved) { about(); }
    });
    svg.addEventListener("dblclick", (event) => {
      const target = links[shown].opens[event.target.closest(".box")?.dataset.number];
      if (target !== undefined) { open(target); }
    });
  }

  function element(name, text, ...children) {
    const made = document.createElement(name);
    if (text) { made.textContent = text; }
    made.append(...children);
    return made;
  }

  function list(pairs) {
    return element("dl", "", ...pairs.flatMap(([name, text]) => [element("dt", name), element("dd", text)]));
  }

  function unmark() {
    for (const marked of document.querySelectorAll(".chosen, .near")) { marked.classList.remove("chosen", "near"); }
  }

  function button(text, act) {
    const made = element("button", text);
    made.addEventListener("click", act);
    return made;
  }

  /** What is said of the whole: shown before a box is chosen. */
  function about() {
    unmark();
    const { about: said, kinds, parent } = links[shown];
    const legend = element("div");
    legend.className = "legend";
    for (const [kind, [hue, saturation]] of Object.entries(kinds)) {
      const chip = element("i");
      chip.style.cssText = `--h:${hue};--s:${saturation}%`;
      legend.append(element("span", "", chip, kind));
    }
    const back = parent === null ? [] : [button("back to all groups", () => open(parent))];
    panel.replaceChildren(...back, list(said), element("dl", "", element("dt", "colours"), element("dd", "", legend),
      element("dt", "use"), element("dd", "Choose a box for what it is. Drag to move, turn the wheel to zoom; Enter in the field goes to the next that is found."
        + (Object.keys(links[shown].opens).length ? " A double click opens a group." : ""))));
  }

  /** The boxes at the other end of a box's lines, as a list that goes there. */
  function neighbours(title, ends) {
    if (!ends.length) { return []; }
    const rows = ends.map(([other, label]) => {
      const [[, operator], second] = facts[shown][other];
      const name = second?.[0] === "name" ? ` ${second[1]}` : "";
      const go = button(operator + name, () => { choose(views[shown].boxes[other]); views[shown].center(views[shown].boxes[other].querySelector("rect")); });
      return element("li", "", go, element("br"), element("small", label));
    });
    return [element("dt", title), element("dd", "", element("ul", "", ...rows))];
  }

  function choose(box) {
    unmark();
    box.classList.add("chosen");
    const number = +box.dataset.number, sources = [], readers = [];
    links[shown].edges.forEach(([source, target, label], line) => {
      if (source !== number && target !== number) { return; }
      views[shown].lines[line]?.classList.add("near");
      const other = source === number ? target : source;
      views[shown].boxes[other]?.classList.add("near");
      (source === number ? readers : sources).push([other, label]);
    });
    const target = links[shown].opens[number];
    const open = target === undefined ? [] : [button("open this group", () => open(target))];
    panel.replaceChildren(...open, list(facts[shown][number]),
      element("dl", "", ...neighbours("reads from", sources), ...neighbours("is read by", readers)));
    panel.scrollTop = 0;
  }

  function find() {
    const text = search.value.trim().toLowerCase();
    const boxes = views[shown].boxes;
    hits = text ? boxes.filter((box) => facts[shown][+box.dataset.number]
      .some(([, value]) => value.toLowerCase().includes(text))) : [];
    hit = -1;
    boxes.forEach((box) => box.classList.remove("found"));
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

  function open(number) {
    shown = choice.selectedIndex = number;
    graphs.forEach((graph, place) => graph.classList.toggle("shown", place === number));
    views[number].start();
    drawMap();
    about();
    find();
  }

  let picture = null, scale = [1, 1];

  /** A small picture of all boxes, where the drawing is larger than its window. */
  function drawMap() {
    const { full, boxes } = views[shown];
    const area = graphs[shown];
    map.hidden = full.height < 2 * area.clientHeight && full.width < 2 * area.clientWidth;
    if (map.hidden) { return; }
    const down = Math.min(0.75 * area.clientHeight / full.height, 0.25);
    scale = [Math.min(Math.min(150, area.clientWidth / 3) / full.width, 6 * down), down]; // chains are drawn wider than they are
    map.width = Math.max(24, Math.ceil(full.width * scale[0]));
    map.height = Math.max(24, Math.ceil(full.height * scale[1]));
    const pen = map.getContext("2d");
    pen.clearRect(0, 0, map.width, map.height);
    for (const box of boxes) {
      const rect = box.querySelector("rect");
      const [x, y, width, height] = ["x", "y", "width", "height"].map((name) => +rect.getAttribute(name));
      pen.fillStyle = getComputedStyle(rect).fill;
      pen.fillRect((x - full.x) * scale[0], (y - full.y) * scale[1], Math.max(1.5, width * scale[0]), Math.max(1.5, height * scale[1]));
    }
    picture = pen.getImageData(0, 0, map.width, map.height);
    drawWindow();
  }

  function drawWindow() {
    if (map.hidden || !picture) { return; }
    const { full } = views[shown], box = views[shown].window(), pen = map.getContext("2d");
    pen.putImageData(picture, 0, 0);
    pen.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--link");
    pen.lineWidth = 2;
    pen.strokeRect((box.x - full.x) * scale[0], (box.y - full.y) * scale[1], box.width * scale[0], box.height * scale[1]);
  }

  for (const name of ["pointerdown", "pointermove"]) {
    map.addEventListener(name, (event) => {
      if (!event.buttons) { return; }
      const corner = map.getBoundingClientRect(), { full } = views[shown];
      views[shown].moveTo(full.x + (event.clientX - corner.left) / scale[0], full.y + (event.clientY - corner.top) / scale[1]);
    });
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
  choice.addEventListener("change", () => open(choice.selectedIndex));
  document.getElementById("about").addEventListener("click", about);
  window.addEventListener("resize", drawMap);
  document.getElementById("larger").addEventListener("click", () => views[shown].zoom(0.8));
  document.getElementById("smaller").addEventListener("click", () => views[shown].zoom(1.25));
  document.getElementById("fit").addEventListener("click", () => views[shown].fit());
  const asked = new URLSearchParams(location.hash.slice(1)); // page.html#graph=1&find=conv1
  choice.selectedIndex = Math.min(graphs.length - 1, Math.max(0, +asked.get("graph") || 0));
  search.value = asked.get("find") ?? "";
  open(choice.selectedIndex);
  next(1);
})();
