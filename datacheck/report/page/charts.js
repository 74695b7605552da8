"use strict";
// Drawings: number lines and histograms, as SVG of the width that there is.

const watched = typeof ResizeObserver === "undefined" ? null : new ResizeObserver((entries) => {
  for (const entry of entries) if (entry.target.drawn) entry.target.drawn();
});

// A box that draws itself again when it gets another width.
function drawing(draw, attributes) {
  const box = el("div", {class: "chart", ...attributes});
  let last = 0;
  box.drawn = (again) => {
    const width = Math.floor(box.clientWidth);
    if (width > 20 && (again || width !== last)) {
      last = width;
      box.replaceChildren(draw(width));
    }
  };
  if (watched) watched.observe(box);
  else requestAnimationFrame(() => box.drawn());
  return box;
}

function ticks(low, high, log, most) {
  if (log) {
    const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
    const step = Math.max(1, Math.ceil((last - first + 1) / most));
    const decades = [];
    for (let power = first; power <= last; power += step) decades.push(10 ** power);
    if (decades.length >= 2) return decades;
  }
  const rough = (high - low) / Math.max(most, 1);
  if (!(rough > 0) || !Number.isFinite(rough)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((size) => size >= rough * 0.999);
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9 && found.length < 50; n += 1) found.push(n * step);
  return found;
}

function scale(low, high, log, from, to) {
  const f = log ? Math.log : (x) => x;
  const a = f(low), b = f(high);
  return (value) => from + ((f(value) - a) / (b - a || 1)) * (to - from);
}

function axis(low, high, log, x, y, unit, width) {
  const made = [svg("line", {class: "axis", x1: x(low), x2: x(high), y1: y, y2: y})];
  const places = ticks(low, high, log, Math.max(2, Math.floor(width / 90)));
  let free = -Infinity;
  places.forEach((value, n) => {
    const text = n === places.length - 1 ? withUnit(value, unit) : number(value);
    const at = x(value), half = text.length * 3.1;
    made.push(svg("line", {class: "axis", x1: at, x2: at, y1: y, y2: y + 4}));
    const middle = Math.min(Math.max(at, half), width - half);
    if (middle - half > free) {
      made.push(svg("text", {x: middle, y: y + 16, "text-anchor": "middle"}, text));
      free = middle + half + 6;
    }
  });
  return made;
}

// ------------------------------------------------------------------------------- measured against expected

// What has to be met, and not only stayed below or above.
const EXACT = ["fps", "step"];

// What can be set against one another in a finding: {value, range, unit, factor}, or null.
function compared(finding) {
  const {measured, expected, cause} = finding;
  const unit = measured.unit || expected.unit || "";
  const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
  if (Array.isArray(expected.range) && expected.range.length === 2 && isNumber(measured.median)) {
    const factor = cause && isNumber(cause.factor) ? cause.factor : null;
    return {value: measured.median, range: expected.range, unit, factor, what: measured.stat || "measured"};
  }
  const name = Object.keys(expected).find((key) => isNumber(expected[key]) && isNumber(measured[key]));
  if (!name) return null;
  const limit = expected[name], value = measured[name];
  const factor = name === "step" && cause && isNumber(cause.factor) ? cause.factor : null;
  const range = EXACT.includes(name) ? [limit, limit] : value > limit ? [null, limit] : [limit, null];
  return {value, range, unit, factor, what: name};
}

function numberLine(finding) {
  const said = compared(finding);
  if (said === null) return null;
  const {value, unit, factor} = said, [low, high] = said.range;
  const rescued = factor === null ? null : value * factor;
  const points = [value, low, high, rescued].filter((one) => typeof one === "number" && Number.isFinite(one));
  const log = Math.min(...points) > 0 && Math.max(...points) / Math.min(...points) > 20;
  let first = Math.min(...points), last = Math.max(...points);
  if (log) { first /= 2; last *= 2; } else { const room = (last - first || 1) * 0.15; first -= room; last += room; }
  const label = `${said.what}: ${withUnit(value, unit)}; allowed: ${interval(said.range, unit)}` +
    (rescued === null ? "" : `; times ${number(factor)}: ${withUnit(rescued, unit)}`);
  return drawing((width) => {
    const x = scale(first, last, log, 8, width - 8), y = 46;
    const left = x(typeof low === "number" ? low : first), right = x(typeof high === "number" ? high : last);
    const words = (at, text, kind, row) => {
      const half = text.length * 3.2;
      return svg("text", {x: Math.min(Math.max(at, half), width - half), y: row, class: kind, "text-anchor": "middle"}, text);
    };
    const apart = Math.abs(x(value) - (left + right) / 2) > 190;
    const marks = [
      svg("rect", {class: "band", x: left, y: y - 16, width: Math.max(2, right - left), height: 16}),
      [low, high].filter((one) => typeof one === "number").map((one) =>
        svg("line", {class: "bandline", x1: x(one), x2: x(one), y1: y - 18, y2: y})),
      words((left + right) / 2, `allowed ${interval(said.range, unit)}`, "bandtext", apart ? 22 : 76),
    ];
    if (rescued !== null) {
      marks.push(svg("path", {class: "arrow", d: `M${x(value)} ${y - 8} L${x(rescued)} ${y - 8}`}),
        svg("circle", {class: "rescued", cx: x(rescued), cy: y - 8, r: 5}),
        words((x(value) + x(rescued)) / 2, `×${number(factor)}`, null, apart ? y - 12 : y - 12));
    }
    marks.push(svg("circle", {class: "measured", cx: x(value), cy: y - 8, r: 6}),
      words(x(value), withUnit(value, unit), "strong", 22), axis(first, last, log, x, y, "", width));
    return svg("svg", {viewBox: `0 0 ${width} ${apart ? 66 : 80}`, width, height: apart ? 66 : 80, role: "img", "aria-label": label}, marks);
  });
}

// ------------------------------------------------------------------------------------------- histograms

// Counts of a measure in one split, or in all: [fit, not fit] per bin.
function binned(measure, split) {
  const bins = measure.edges.length - 1;
  const sums = [new Array(bins).fill(0), new Array(bins).fill(0)];
  measure.counts.forEach((counts, group) => {
    if (split === "" || measure.groups[Math.floor(group / 2)] === split) {
      counts.forEach((one, n) => { sums[group % 2][n] += one; });
    }
  });
  return sums;
}

// What the reference has in these bins of one split, or of all, as if it had as many samples in them; null without one.
function thenBinned(measure, split, total) {
  if (!measure.then) return null;
  const counts = new Array(measure.edges.length - 1).fill(0);
  measure.then.counts.forEach((mine, group) => {
    if (split === "" || measure.groups[group] === split) mine.forEach((one, n) => { counts[n] += one; });
  });
  const all = counts.reduce((sum, one) => sum + one, 0);
  return all ? counts.map((one) => (one * total) / all) : null;
}

function bars(measure, split, x, top, bottom) {
  const [fit, unfit] = binned(measure, split);
  const now = fit.map((one, n) => one + unfit[n]), then = thenBinned(measure, split, now.reduce((sum, one) => sum + one, 0) || 1);
  const most = Math.max(1, ...now, ...(then || []));
  const behind = then && svg("path", {class: "then", d: `M${x(measure.edges[0])} ${bottom}` +
    then.map((one, n) => `V${bottom - (one / most) * (bottom - top)}H${x(measure.edges[n + 1])}`).join("") + `V${bottom}`});
  const tall = (one) => (one ? Math.max(2, (one / most) * (bottom - top)) : 0);
  return [behind, fit.map((good, n) => {
    const bad = unfit[n], from = measure.edges[n], to = measure.edges[n + 1];
    if (!good && !bad) return null;
    const left = x(from), width = Math.max(1, x(to) - left - (x(to) - left > 4 ? 1 : 0));
    const high = tall(good), more = tall(bad);
    return svg("g", {},
      svg("title", {}, `${number(from)} to ${withUnit(to, measure.unit)}: ${count(good + bad, "sample")}` +
        (bad ? `, ${bad.toLocaleString("en")} not fit` : "")),
      good ? svg("rect", {class: "fit", x: left, width, y: bottom - high, height: high}) : null,
      bad ? svg("rect", {class: "unfit", x: left, width, y: bottom - high - more, height: more}) : null);
  })];
}

function sparkline(measure, split) {
  const width = 170, x = scale(measure.edges[0], measure.edges.at(-1), measure.log, 0, width);
  return svg("svg", {viewBox: `0 0 ${width} 34`, width, height: 34, role: "img", "aria-label": `Histogram of ${measure.label}`},
    bandOf(measure, x, 2, 33, width), bars(measure, split, x, 5, 33), marksOf(measure, x, 2, 33),
    svg("line", {class: "axis", x1: 0, x2: width, y1: 33.5, y2: 33.5}));
}

function bandOf(measure, x, top, bottom, width) {
  if (!measure.band) return [];
  const first = measure.edges[0], last = measure.edges.at(-1);
  const [low, high] = measure.band;
  const left = low === null || low <= first ? x(first) : low >= last ? null : x(low);
  const right = high === null || high >= last ? x(last) : high <= first ? null : x(high);
  const line = (value) => value !== null && value > first && value < last
    ? svg("line", {class: "bandline", x1: x(value), x2: x(value), y1: top, y2: bottom}) : null;
  const area = left === null || right === null || right <= left ? null
    : svg("rect", {class: "band", x: left, y: top, width: Math.min(width, right) - left, height: bottom - top});
  return [area, line(low), line(high)];
}

// Lines at what the schema names, with their names where there is a width.
function marksOf(measure, x, top, bottom, width) {
  return (measure.marks || []).filter(({at}) => at >= measure.edges[0] && at <= measure.edges.at(-1)).map(({at, name}) => {
    const left = x(at) > (width || 0) / 2;
    return [svg("line", {class: "named", x1: x(at), x2: x(at), y1: top, y2: bottom}),
      width ? svg("text", {class: "name", x: x(at) + (left ? -5 : 5), y: top + 9, "text-anchor": left ? "end" : "start"}, name) : null];
  });
}

function marksSaid({marks, groups, n}) {
  return (marks || []).map(({name, many, less, below}) => `${name}: ${groups.length > 1 ? "in all splits " : ""}${many ? `${many.toLocaleString("en")} of ${count(n, "sample")} ${less}, ${below}` : `none of ${count(n, "sample")} ${less}`}`);
}

function histogram(measure, split, field) {
  const outside = [
    measure.below ? `${count(measure.below, "sample")} left of it, down to ${number(measure.low)}` : "",
    measure.above ? `${count(measure.above, "sample")} right of it, up to ${number(measure.high)}` : "",
    measure.nonfinite ? `${count(measure.nonfinite, "sample")} with NaN or infinity instead, not drawn` : "",
  ].filter(Boolean).join("; ");
  const {p: [first, median, last], then} = measure, whole = !field || !split;  // of one split no percentiles are known
  const label = `Histogram of ${measure.label}: ${number(measure.low)} to ${withUnit(measure.high, measure.unit)}` + (whole ? `, median ${number(median)}` : "") +
    (whole && then ? `, of the reference ${number(then.median)}` : "") + (measure.band ? `, allowed ${interval(measure.band, measure.unit)}` : "") +
    marksSaid(measure).map((said) => `, ${said}`).join("");
  const meant = measure.units && measure.units.length ? otherUnits(measure, split) : [];
  const said = [
    whole ? `${measure.groups.length > 1 ? "all splits: " : ""}1 %: ${number(first)} · median: ${number(median)} · 99 %: ${number(last)}` : "",
    whole && then ? `median of the reference: ${number(then.median)}` : "", measure.band ? `allowed: ${interval(measure.band, measure.unit)}` : "",
    ...marksSaid(measure), measure.log ? "log axis" : "", ...meant.map(({unit, many}) => `${count(many, "sample")} would be allowed in ${unit}`), outside && !whole ? `all splits: ${outside}` : outside,
  ].filter(Boolean).join(" · ");
  return el("div", {},
    el("h4", {}, field ? `${field}: ` : "", measure.label, measure.unit ? ` (${measure.unit})` : ""),
    drawing((width) => {
      const x = scale(measure.edges[0], measure.edges.at(-1), measure.log, 2, width - 2), bottom = 118;
      return svg("svg", {viewBox: `0 0 ${width} 138`, width, height: 138, role: "img", "aria-label": label},
        bandOf(measure, x, 4, bottom, width), bars(measure, split, x, 8, bottom), meant.length ? unitsOf(measure, meant, x, 4, bottom) : null, marksOf(measure, x, 4, bottom, width),
        axis(measure.edges[0], measure.edges.at(-1), measure.log, x, bottom, "", width));
    }),
    el("p", {class: "small soft"}, said));
}
