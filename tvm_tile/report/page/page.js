"use strict";

// The page is complete without this: it moves the graph, finds things, shows details of what is
// chosen, and sorts the table. It takes no text for HTML: what it shows is cloned from templates.
(() => {
  const byId = (id) => document.getElementById(id);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const svg = byId("world"), canvas = byId("canvas"), stage = byId("stage");
  const boxes = svg ? all(".box", svg) : [];
  const lines = svg ? all(".lines path", svg) : [];
  const rows = all("#kernels tbody tr");
  const kernelOf = boxes.map((_, n) => byId(`about-${n}`).dataset.kernel);

  // ---- Where the graph is seen from: a point (x, y) of the plane at the corner, and a scale.
  const LEAST = 0.02, READABLE = 0.72, MOST = 3, SIZE = { width: 252, height: 62 };
  const world = svg ? { width: +svg.dataset.width, height: +svg.dataset.height } : null;
  const corners = boxes.map((box) => box.transform.baseVal.getItem(0).matrix).map((m) => ({ x: m.e, y: m.f }));
  const view = { x: 0, y: 0, scale: 1 };
  const room = { width: 1, height: 1 };
  const narrow = matchMedia("(max-width: 600px)");
  const strip = () => (narrow.matches ? 0 : 92); // pixels at the right, where the overview is

  function clamped(at, length, seen) {
    const margin = 60 / view.scale;
    if (length + 2 * margin <= seen) return (length - seen) / 2;
    return Math.min(Math.max(at, -margin), length - seen + margin);
  }

  function look(x, y, scale) {
    view.scale = Math.min(Math.max(scale, LEAST), MOST);
    view.x = clamped(x, world.width, (room.width - strip()) / view.scale);
    view.y = clamped(y, world.height, room.height / view.scale);
    stage.setAttribute("transform", `scale(${view.scale}) translate(${-view.x} ${-view.y})`);
    svg.classList.toggle("far", view.scale < 0.45);
    drawOverview();
  }

  function zoom(factor, at = { x: room.width / 2, y: room.height / 2 }) {
    const scale = Math.min(Math.max(view.scale * factor, LEAST), MOST);
    look(view.x + at.x / view.scale - at.x / scale, view.y + at.y / view.scale - at.y / scale, scale);
  }

  const whole = () => Math.min((room.width - strip()) / (world.width + 40), room.height / (world.height + 80), 1.2);

  // All of a small graph; of a tall one its start, at a size that can be read.
  function start() {
    const readable = Math.min(Math.max((room.width - strip()) / (world.width + 40), READABLE), 1);
    look(0, 0, Math.max(whole(), readable));
    if (whole() < readable) look(corners[0].x + SIZE.width / 2 - (room.width - strip()) / view.scale / 2, -20, view.scale);
  }

  function bringIntoView(number) {
    const { x, y } = corners[number];
    const seen = { width: (room.width - strip()) / view.scale, height: room.height / view.scale };
    const isIn = x > view.x && x + SIZE.width < view.x + seen.width && y > view.y && y + SIZE.height < view.y + seen.height;
    const scale = Math.max(view.scale, READABLE);
    if (!isIn || scale !== view.scale) look(x + SIZE.width / 2 - (room.width - strip()) / scale / 2, y + SIZE.height / 2 - room.height / scale / 2, scale);
  }

  // ---- The overview: the whole graph on a strip, and what of it is seen.
  const overview = byId("overview");
  let picture = null;

  function paintOverview() {
    const height = Math.max(60, Math.min(room.height - 18, 420, world.height));
    overview.width = 76; overview.height = height;
    overview.style.height = `${height}px`;
    picture = document.createElement("canvas");
    picture.width = 76; picture.height = height;
    const pen = picture.getContext("2d");
    const across = 76 / (world.width + 20), down = height / (world.height + 20);
    const isTime = canvas.dataset.colour === "time", known = new Map();
    boxes.forEach((box, n) => {
      const key = isTime ? box.getAttribute("style") : box.classList[1];
      if (!known.has(key)) known.set(key, isTime ? getComputedStyle(box.firstElementChild).fill : getComputedStyle(box).getPropertyValue("--own"));
      pen.fillStyle = known.get(key);
      pen.fillRect((corners[n].x + 10) * across, (corners[n].y + 10) * down, Math.max(3, SIZE.width * across), Math.max(1, SIZE.height * down));
    });
    drawOverview();
  }

  function drawOverview() {
    if (!picture) return;
    const pen = overview.getContext("2d"), style = getComputedStyle(overview);
    const across = 76 / (world.width + 20), down = picture.height / (world.height + 20);
    pen.clearRect(0, 0, overview.width, overview.height);
    pen.drawImage(picture, 0, 0);
    pen.strokeStyle = style.getPropertyValue("--accent"); pen.lineWidth = 2;
    const left = Math.max(1, (view.x + 10) * across), right = Math.min(75, (view.x + room.width / view.scale + 10) * across);
    const top = Math.max(1, (view.y + 10) * down), bottom = Math.min(picture.height - 1, (view.y + room.height / view.scale + 10) * down);
    pen.strokeRect(left, top, right - left, Math.max(3, bottom - top));
  }

  function lookFromOverview(event) {
    if (!event.buttons) return;
    const across = (world.width + 20) / 76, down = (world.height + 20) / overview.height;
    look(event.offsetX * across - room.width / view.scale / 2, event.offsetY * down - room.height / view.scale / 2, view.scale);
  }

  // ---- Details of what is chosen.
  const first = byId("first"), chosen = byId("chosen"), details = byId("details");

  // Texts are long, and few of them are read: each is unpacked when it is opened.
  document.addEventListener("toggle", async (event) => {
    const text = event.target.querySelector("[data-packed]");
    if (!text || text.textContent) return;
    const bytes = Uint8Array.from(atob(text.dataset.packed), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    text.textContent = await new Response(stream).text();
  }, true);

  function copyOf(id) { return byId(id).content.cloneNode(true); }

  function show(parts) {
    const back = document.createElement("button");
    back.type = "button"; back.className = "back"; back.textContent = "‹ What takes most";
    back.addEventListener("click", () => { choose(null); details.focus(); });
    chosen.replaceChildren(back, ...parts);
    first.hidden = true; chosen.hidden = false; details.scrollTop = 0;
    byId("told").textContent = `Details of ${chosen.querySelector("h3").textContent}`;
  }

  function choose(number) {
    all(".chosen").forEach((one) => one.classList.remove("chosen"));
    lines.forEach((line) => line.classList.toggle("own", number !== null && (+line.dataset.maker === number || +line.dataset.taker === number)));
    first.hidden = false; chosen.hidden = true;
    if (number === null) return;
    boxes[number].classList.add("chosen");
    setCurrent(number);
    const parts = [copyOf(`about-${number}`)], kernel = kernelOf[number];
    if (kernel !== "") {
      const own = copyOf(`kernel-${kernel}`);
      own.querySelector("h3").remove();
      parts.push(own);
      all(`circle[data-kernel="${kernel}"]`).forEach((point) => point.classList.add("chosen"));
    }
    show(parts);
  }

  // A kernel that the graph shows is shown there, at its first call.
  function chooseKernel(kernel) {
    const number = kernelOf.indexOf(kernel);
    if (number >= 0) { choose(number); bringIntoView(number); } else show([copyOf(`kernel-${kernel}`)]);
    if (!details.closest("section").contains(document.activeElement)) details.scrollIntoView({ block: "nearest" });
    details.focus({ preventScroll: true });
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-box], [data-kernel]:not(template)");
    if (!button) return;
    if (button.dataset.box === undefined) return chooseKernel(button.dataset.kernel);
    choose(+button.dataset.box);
    bringIntoView(+button.dataset.box);
  });

  // ---- Keys: one box, or point, of many can be reached by Tab; arrows go on from there.
  let current = 0;

  function setCurrent(number) {
    boxes[current].setAttribute("tabindex", "-1");
    current = number;
    boxes[current].setAttribute("tabindex", "0");
  }

  function goTo(number) {
    setCurrent(number);
    bringIntoView(number);
    boxes[number].focus({ preventScroll: true });
  }

  // The one in the next rank, and of these that nearest to the same place.
  function nearest(numbers) {
    const from = corners[current];
    const far = (n) => Math.abs(corners[n].y - from.y) * 1e4 + Math.abs(corners[n].x - from.x);
    return [...numbers].sort((a, b) => far(a) - far(b))[0];
  }

  function beside(step) {
    const level = boxes.map((_, n) => n).filter((n) => corners[n].y === corners[current].y);
    level.sort((a, b) => corners[a].x - corners[b].x);
    return level[level.indexOf(current) + step];
  }

  function onKey(event) {
    const box = event.target.closest(".box");
    if (!box) return;
    const steps = {
      ArrowDown: () => nearest(lines.filter((l) => +l.dataset.maker === current).map((l) => +l.dataset.taker)),
      ArrowUp: () => nearest(lines.filter((l) => +l.dataset.taker === current).map((l) => +l.dataset.maker)),
      ArrowLeft: () => beside(-1), ArrowRight: () => beside(1),
      // In the order of the program, which goes on from one function's graph to the next.
      PageUp: () => Math.max(0, current - 1), PageDown: () => Math.min(boxes.length - 1, current + 1),
      Home: () => 0, End: () => boxes.length - 1,
    };
    if (event.key === "Enter" || event.key === " ") choose(current);
    else if (event.key === "Escape") choose(null);
    else if (event.key in steps) { const next = steps[event.key](); if (next !== undefined) goTo(next); }
    else return;
    event.preventDefault();
  }

  function moveAlong(points, event) {
    const at = points.indexOf(event.target);
    if (at < 0) return;
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); return chooseKernel(event.target.dataset.kernel); }
    const next = points[at + ({ ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key] ?? NaN)];
    if (!next) return;
    event.preventDefault();
    event.target.setAttribute("tabindex", "-1"); next.setAttribute("tabindex", "0"); next.focus();
  }

  // ---- Finding: all words must be in what a box or a row is of.
  const find = byId("find"), found = byId("found");
  const texts = boxes.map((box) => box.dataset.find), rowTexts = rows.map((row) => row.dataset.find);
  let matches = [], at = -1;

  // Long tables take long to lay out: beyond some rows the others wait until they are asked for.
  const more = byId("more"), body = document.querySelector("#kernels tbody");
  let most = +more.dataset.most, wantedRows = new Set(rows);

  function showRows() {
    let shown = 0;
    for (const row of body.rows) { row.hidden = !wantedRows.has(row) || shown >= most; shown += !row.hidden; }
    more.hidden = shown === wantedRows.size;
    more.textContent = `Show ${wantedRows.size - shown} more`;
  }

  more.addEventListener("click", () => { most = Infinity; showRows(); });

  function search() {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    const isIn = (text) => words.every((word) => text.includes(word));
    matches = words.length ? texts.flatMap((text, n) => (isIn(text) ? [n] : [])) : [];
    at = -1;
    const wanted = new Set(matches);
    boxes.forEach((box, n) => box.classList.toggle("match", wanted.has(n)));
    if (svg) svg.classList.toggle("searching", words.length > 0);
    wantedRows = new Set(rows.filter((_, n) => isIn(rowTexts[n])));
    showRows();
    found.textContent = words.length ? (svg ? `${matches.length} boxes` : `${wantedRows.size} kernels`) : "";
    byId("previous").disabled = byId("next").disabled = !matches.length;
    if (matches.length) bringIntoView(matches[0]);
  }

  function step(by) {
    if (!matches.length) return;
    at = (at + by + matches.length) % matches.length;
    found.textContent = `${at + 1} of ${matches.length}`;
    choose(matches[at]);
    bringIntoView(matches[at]);
  }

  find.addEventListener("input", search);
  find.addEventListener("keydown", (event) => {
    if (event.key === "Enter") step(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") { find.value = ""; search(); }
  });
  byId("next").addEventListener("click", () => step(1));
  byId("previous").addEventListener("click", () => step(at < 0 ? 0 : -1));

  // ---- The table.
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-column]");
    if (!button) return;
    const heading = button.parentElement, column = +button.dataset.column, isNumber = button.dataset.kind === "number";
    const isUp = heading.getAttribute("aria-sort") === (isNumber ? "descending" : "none") || (!isNumber && heading.getAttribute("aria-sort") === "descending");
    all("th[aria-sort]").forEach((one) => one.setAttribute("aria-sort", "none"));
    heading.setAttribute("aria-sort", isUp ? "ascending" : "descending");
    const value = (row) => (isNumber ? +row.children[column].dataset.value : row.children[column].textContent);
    const order = (a, b) => (isNumber ? value(a) - value(b) : value(a).localeCompare(value(b)));
    rows.slice().sort((a, b) => (isUp ? order(a, b) : order(b, a))).forEach((row) => body.append(row));
    showRows();
  });

  all(".plot svg[role=group]").forEach((plot) => {
    const points = all("circle", plot);
    plot.addEventListener("keydown", (event) => moveAlong(points, event));
  });

  // ---- Pointers and wheels.
  function listen() {
    const pointers = new Map();
    let pressed = null, hasMoved = false;
    const place = (event) => { const own = svg.getBoundingClientRect(); return { x: event.clientX - own.left, y: event.clientY - own.top }; };
    const apart = () => { const [a, b] = [...pointers.values()]; return Math.hypot(a.x - b.x, a.y - b.y); };
    svg.addEventListener("pointerdown", (event) => {
      pointers.set(event.pointerId, place(event));
      pressed = event.target.closest(".box"); hasMoved = false;
    });
    svg.addEventListener("pointermove", (event) => {
      const before = pointers.get(event.pointerId), now = place(event);
      if (!before) return;
      if (!hasMoved && Math.hypot(now.x - before.x, now.y - before.y) < 4) return;
      hasMoved = true;
      svg.classList.add("dragged");
      svg.setPointerCapture(event.pointerId);
      const gap = pointers.size === 2 ? apart() : 0;
      pointers.set(event.pointerId, now);
      if (gap) zoom(apart() / gap, now); else look(view.x - (now.x - before.x) / view.scale, view.y - (now.y - before.y) / view.scale, view.scale);
    });
    const release = (event) => { pointers.delete(event.pointerId); svg.classList.remove("dragged"); };
    svg.addEventListener("pointerup", (event) => {
      release(event);
      if (pressed && !hasMoved) { choose(boxes.indexOf(pressed)); pressed.focus({ preventScroll: true }); }
    });
    svg.addEventListener("pointercancel", release);
    svg.addEventListener("wheel", (event) => {
      const { x, y, scale } = view;
      if (event.ctrlKey || event.metaKey) zoom(Math.exp(-event.deltaY / 300), place(event));
      else look(x + (event.shiftKey ? event.deltaY : event.deltaX) / scale, y + (event.shiftKey ? 0 : event.deltaY) / scale, scale);
      // At the end of the graph the page scrolls on.
      if (view.x !== x || view.y !== y || view.scale !== scale) event.preventDefault();
    }, { passive: false });
    svg.addEventListener("keydown", onKey);
    overview.addEventListener("pointerdown", lookFromOverview);
    overview.addEventListener("pointermove", lookFromOverview);
    byId("in").addEventListener("click", () => zoom(1.4));
    byId("out").addEventListener("click", () => zoom(1 / 1.4));
    byId("fit").addEventListener("click", () => look(0, 0, whole()));
    byId("colour").addEventListener("change", (event) => { canvas.dataset.colour = event.target.value; paintOverview(); });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paintOverview);
    new ResizeObserver(([entry]) => {
      const isFirst = room.width === 1;
      room.width = entry.contentRect.width; room.height = entry.contentRect.height;
      if (isFirst) start(); else look(view.x, view.y, view.scale);
      paintOverview();
    }).observe(svg);
  }

  showRows();
  if (svg) listen();
})();
