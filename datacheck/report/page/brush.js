"use strict";
// A range of a histogram, chosen by pointer or keys: the sample table has the samples in it, and one line gets them all.

const SIGNS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";  // of bins, as in report/html.py
// Beside the bins: the sign, what is called so, and what is to be so.
const BESIDE = {below: ["-", "left of it"], above: ["_", "right of it"], nonfinite: ["!", "with NaN or infinity"]};
const PLOT = 2;  // pixels left and right of what `histogram` draws

// What is chosen, of one histogram at a time: {field, measure, split, from, to}: bins `from` to below `to`,
// or what is `beside` them; or null.
const brush = {chosen: null, heard: []};

function choose(chosen) {
  brush.chosen = chosen;
  for (const one of brush.heard) one();
  document.querySelectorAll(".brush").forEach((one) => one.chosen());
}

// Settled: said to those who see no histogram.
function chooseAndTell(run, chosen) {
  choose(chosen);
  tell(chosen ? `${rangeSaid(run, chosen)}: ${tally(run, chosen)}` : "The range is cleared");
}

// ------------------------------------------------------------------------------------------------ in words

// The edges of a measure's bins, with as many digits as tell them apart; of whole numbers the first or last in the bin.
function edgeSaid(run, measure, edge, upper) {
  if (run.brushes[measure.column].whole) return (measure.edges[edge] + (upper ? -0.5 : 0.5)).toLocaleString("en");
  const {edges} = measure, value = Math.abs(edges[edge]) < (edges.at(-1) - edges[0]) * 1e-9 && !measure.log ? 0 : edges[edge];
  let digits = 3;
  while (digits < 17 && edges.some((one, n) => n && one.toPrecision(digits) === edges[n - 1].toPrecision(digits))) digits += 1;
  const size = Math.abs(value), short = Number(value.toPrecision(digits));
  return size && (size >= 1e9 || size < 1e-3) ? short.toExponential().replace("e+", "e") : short.toLocaleString("en", {maximumSignificantDigits: digits});
}

function rangeSaid(run, {field, measure, split, from, to, beside}) {
  if (beside) {
    const last = measure.edges.length - 1, edge = (n) => withUnit(edgeSaid(run, measure, n, false), measure.unit);
    const what = {below: () => `${measure.label} < ${edge(0)}`, above: () => `${measure.label} > ${edge(last)}`, nonfinite: () => `${measure.label} is NaN or infinite`}[beside]();
    return [field.name, what].filter(Boolean).join(" · ");
  }
  const low = edgeSaid(run, measure, from, false), high = edgeSaid(run, measure, to, true);
  const unit = measure.unit && measure.unit !== "1" ? ` ${measure.unit}` : "";
  const last = run.brushes[measure.column].whole || to === measure.edges.length - 1 ? "≤" : "<";
  const range = low === high ? `${measure.label} = ${high}${unit}` : `${low} ≤ ${measure.label} ${last} ${high}${unit}`;
  return [field.name, split ? `split ${split}` : "", range].filter(Boolean).join(" · ");
}

function tally(run, chosen) {
  const {from, to, measure, split, beside} = chosen, {rows} = run.samples, {total} = run.of_samples, held = chosenRows(run, chosen);
  const many = beside ? measure[beside] : binned(measure, split).flatMap((counts) => counts.slice(from, to)).reduce((sum, one) => sum + one, 0);
  if (held === null) return `${count(many, "sample")} of the run. Which of them are in this page it does not hold, so the table below has all of its rows`;
  return rows.length === total ? count(many, "sample") : `${count(many, "sample")} of the run, ${rows.filter(held).length.toLocaleString("en")} of them among the ${count(rows.length, "row")} of this page`;
}

// Which rows of the sample table are in the range; null where the page had no room for what tells.
function chosenRows(run, {measure, split, from, to, beside}) {
  const {bins} = run.brushes[measure.column], signs = new Set(beside ? BESIDE[beside][0] : SIGNS.slice(from, to));
  const ofSplit = (name) => !split || name === split || (name.endsWith(" …") && split.startsWith(name.slice(0, -2)));  // cut
  return bins === undefined ? null : (row, n) => signs.has(bins[n]) && ofSplit(row[SPLIT]);
}

// One line of Python that finds the same samples in the whole run.
function pythonOf(run, {measure, split, from, to, beside}) {
  const float = (value) => (/[.e]/.test(String(value)) ? String(value) : `${value}.0`);
  const {edges} = measure, last = edges.length - 1, within = [`(v >= ${float(edges[from])})`, `(v ${to === last ? "<=" : "<"} ${float(edges[to])})`];
  const filters = [...({below: [`(v < ${float(edges[0])})`, "pc.is_finite(v)"], above: [`(v > ${float(edges[last])})`, "pc.is_finite(v)"], nonfinite: ["~pc.is_finite(v)"]}[beside] || within),
    split ? `(pc.field('split') == ${seen(JSON.stringify(split))})` : ""];
  return `import pyarrow.compute as pc, pyarrow.parquet as pq; v = ${run.brushes[measure.column].value}; ` +
    `keys = pq.read_table(${run.parquet}, columns=['key'], filters=${filters.filter(Boolean).join(" & ")})['key'].to_pylist(); print(len(keys))`;
}

// --------------------------------------------------------------------------------------------- the histogram

// A histogram of which a range can be chosen: dragged over, or with the two ends of it, which are sliders.
function brushable(field, measure, split, run) {
  const figure = histogram(measure, split);
  if (!run.brushes[measure.column]) return figure;
  const bins = measure.edges.length - 1, plot = figure.querySelector(".chart"), said = el("span");
  const mine = () => brush.chosen !== null && brush.chosen.measure === measure && brush.chosen.split === split;
  const range = (from, to) => ({field, measure, split, from, to});
  const settle = () => { if (mine()) chooseAndTell(run, brush.chosen); };
  const clear = () => { if (mine()) chooseAndTell(run, null); };
  const end = (upper) => el("input", {type: "range", min: 0, max: bins, step: 1, "aria-label": `${field.name ? `${field.name}: ` : ""}${measure.label}: ${upper ? "to" : "from"}`,
    oninput: () => moved(upper), onchange: settle});
  const first = end(false), last = end(true), shade = el("div", {class: "shade"});
  const moved = (upper) => {
    const from = Number(first.value), to = Number(last.value);
    choose(upper ? range(from, Math.max(to, from + 1)) : range(Math.min(from, to - 1), to));
  };
  const line = el("p", {class: "small", hidden: true}, said, " ", el("a", {href: "#samples"}, "To the table"), " · ",
    el("button", {type: "button", class: "link", onclick: () => { clear(); first.focus({preventScroll: true}); }}, "Clear"));
  const stage = el("div", {class: "brush"});
  stage.chosen = () => {
    const ranged = mine() && !brush.chosen.beside, {from, to} = ranged ? brush.chosen : range(0, bins);
    first.value = from;
    last.value = to;
    first.setAttribute("aria-valuetext", `${edgeSaid(run, measure, Math.min(from, bins - 1), false)} ${measure.unit}`.trim());
    last.setAttribute("aria-valuetext", `${edgeSaid(run, measure, Math.max(to, 1), true)} ${measure.unit}`.trim());
    shade.style.left = `calc(${PLOT}px + (100% - ${2 * PLOT}px) * ${from / bins})`;
    shade.style.width = `calc((100% - ${2 * PLOT}px) * ${(to - from) / bins})`;
    shade.hidden = !ranged;
    line.hidden = !mine();
    if (mine()) said.textContent = seen(`${rangeSaid(run, brush.chosen)}: ${tally(run, brush.chosen)}.`);
  };
  plot.replaceWith(stage);
  stage.append(plot, shade, first, last);
  const others = split ? [] : Object.keys(BESIDE).filter((beside) => measure[beside]);  // which are not counted by split
  stage.after(line, others.length ? el("p", {class: "small beside"}, "Choose: ", others.map((beside) => el("button", {type: "button", class: "link", onclick: () =>
    chooseAndTell(run, {...range(0, bins), beside})}, `${measure[beside].toLocaleString("en")} ${BESIDE[beside][1]}`))) : "");
  figure.addEventListener("keydown", (event) => {
    const by = {ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1}[event.key];
    if (event.key === "Escape") clear();
    else if (event.shiftKey && by && mine() && !brush.chosen.beside && event.target.type === "range") {  // both ends
      event.preventDefault();
      const {from, to} = brush.chosen, step = Math.max(-from, Math.min(bins - to, by));
      chooseAndTell(run, range(from + step, to + step));
    }
  });
  dragged(plot, bins, (from, to) => choose(range(from, to)), (before) => choose(before), () => { first.focus({preventScroll: true}); settle(); });
  stage.chosen();
  return figure;
}

// Tells the bins that are dragged over, when it is over, and what was chosen before where it comes to nothing.
function dragged(plot, bins, over, undo, done) {
  let began = null;
  const bin = ({clientX}) => {
    const {left, width} = plot.getBoundingClientRect();
    return Math.max(0, Math.min(bins - 1, Math.floor(((clientX - left - PLOT) / (width - 2 * PLOT)) * bins)));
  };
  const drag = (event) => over(Math.min(began.bin, bin(event)), Math.max(began.bin, bin(event)) + 1);
  plot.addEventListener("pointerdown", (event) => {
    if (event.button || !event.isPrimary) return;
    began = {bin: bin(event), x: event.clientX, far: false, before: brush.chosen};
    plot.setPointerCapture(event.pointerId);
  });
  plot.addEventListener("pointermove", (event) => {
    if (began === null) return;
    began.far = began.far || Math.abs(event.clientX - began.x) > 3;
    if (began.far) drag(event);
  });
  plot.addEventListener("pointerup", (event) => {
    if (began === null) return;
    drag(event);
    began = null;
    done();
  });
  plot.addEventListener("pointercancel", () => {
    if (began !== null && began.far) undo(began.before);
    began = null;
  });
}

// --------------------------------------------------------------------------------------- above the sample table

// What is chosen, how many samples that is, and how to get all of them; `cleared` when it is not chosen any more.
function chosenOf(run, cleared) {
  const chip = el("div", {class: "card chosen", hidden: true});
  const draw = () => {
    chip.hidden = brush.chosen === null;
    chip.replaceChildren(...(chip.hidden ? [] : [
      el("div", {class: "top"}, el("p", {}, el("strong", {}, rangeSaid(run, brush.chosen)), `: ${tally(run, brush.chosen)}.`),
        el("button", {type: "button", onclick: () => { chooseAndTell(run, null); cleared(); }}, "Clear the range")),
      el("p", {class: "small soft"}, "Their keys, all of them, in Python:"), el("div", {class: "keys"}, copyable(pythonOf(run, brush.chosen)))]));
  };
  brush.heard.push(draw);
  return chip;
}
