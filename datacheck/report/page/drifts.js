"use strict";
// What was held against the reference: the effect of all of it, and the two distributions of what drifted most.

const MOST_CURVES = 6, FIRST_EFFECTS = 20, SIDE = 62;  // room beside the curves for their names
const SCALES = {DC902: ["standard deviations", "sd"], DC903: ["total variation", ""]};

function driftsOf(drifts) {
  const made = (drifts || []).filter(({measures}) => measures.length);
  return made.length ? [made.map(comparedOf), curvesOf(made)] : null;
}

// ------------------------------------------------------------------------------------------ size of effects

function comparedOf(rule) {
  const {code, count: many, measures, effect: limit, false_discoveries: rate} = rule, [scaleName, unit] = SCALES[code] || ["effect", ""];
  const told = rule.drifted, tested = measures.some(({chance}) => chance !== null);
  const largest = measures.reduce((most, one) => (one.effect > most.effect ? one : most));
  const fields = new Set(measures.map(({field}) => field)).size, what = code === "DC903" ? "class distribution" : "measure";
  const first = told ? `${told.toLocaleString("en")} of ${count(many, what)} drifted.`
    : `${count(many, what)}${many > measures.length ? "" : ` of ${count(fields, "field")}`} compared, nothing drifted: the largest effect is ${withUnit(largest.effect, unit)} (${nameOf(largest)})${largest.effect < limit ? "" : ", which may be chance"}.`;
  const splits = new Map(measures.map(({split, groups}) => [split, groups])), limits = `A measure drifts from ${withUnit(limit, unit)} on where chance is unlikely to give as much (q at most ${number(rate)}).`;
  const sides = `Looked at: ${[...splits].map(([name, {here, reference}]) => `${name ? `${name} ` : ""}${count(here, "group")} here, ${reference.toLocaleString("en")} in the reference`).join("; ")} (at most 1,000 a side, and 50,000 samples).`;
  const left = many - measures.length;
  return el("div", {class: "card drifts", "data-rule": code}, el("h3", {}, `${rule.name}: size of the effects`, el("span", {class: "soft small"}, ` in ${scaleName}`)),
    el("p", {}, first), effects(measures.slice(0, FIRST_EFFECTS), rule, unit),
    el("p", {class: "small soft"}, [limits, tested ? "Grey: what 95 of 100 random deals of the groups stay within, of what was tested." : "", code === "DC902" ? "What stays below the limit was not tested." : "", sides].filter(Boolean).join(" ")),
    measures.length > FIRST_EFFECTS ? el("details", {}, el("summary", {}, `${measures.length - FIRST_EFFECTS} more`), effects(measures.slice(FIRST_EFFECTS), rule, unit)) : null,
    left ? el("p", {class: "small soft"}, `${count(left, "more measure")} with smaller effects did not fit.`) : null);
}

function nameOf({field, label, split}) {
  return `${field || "sample"} ${label}${split ? ` of ${split}` : ""}`;
}

function verdictOfEffect({effect, drifted, q, chance}, limit, unit) {
  const size = withUnit(effect, unit);
  if (drifted) return `${size}, drifted (q ${number(q)})`;
  if (effect < limit) return `${size}, below the limit`;
  return `${size}, may be chance (q ${number(q)}${chance === null ? "" : `, 95 % of chance: ${number(chance)}`})`;
}

// A row for each measure: its name, how large the effect is on a common axis, the number.
function effects(measures, {effect: limit}, unit) {
  const most = Math.max(limit, ...measures.map(({effect, chance}) => Math.max(effect, chance || 0))) || 1;
  const log = limit > 0 && most > 20 * limit, first = log ? limit / 10 : 0;
  const label = `Size of effects, limit ${withUnit(limit, unit)}: ${measures.map((one) => `${nameOf(one)} ${verdictOfEffect(one, limit, unit)}`).join("; ")}`;
  return drawing((width) => {
    const narrow = width < 560, ROW = narrow ? 38 : 22, left = narrow ? 6 : Math.min(300, Math.floor(width * 0.42)), right = width - 74, x = scale(first, most, log, left, right), at = (value) => x(Math.max(value, first));
    const top = 18, bottom = top + measures.length * ROW, line = at(limit);
    const rows = measures.map((one, n) => {
      const y = top + n * ROW + (narrow ? 27 : ROW / 2), kind = one.drifted ? "unfit" : "fit", room = (narrow ? width : left - 8) * (one.drifted ? 0.9 : 1);  // bold is wider
      return svg("g", {class: one.drifted ? "effect drifted" : "effect"}, svg("title", {}, `${nameOf(one)}: ${verdictOfEffect(one, limit, unit)}`),
        svg("text", {class: one.drifted ? "halo strong" : "halo", x: narrow ? 0 : left - 8, y: narrow ? y - 13 : y + 4, "text-anchor": narrow ? "start" : "end"}, clipped(nameOf(one), room)),
        one.chance === null ? null : svg("rect", {class: "chance", x: left, y: y - 8, width: Math.max(1, at(one.chance) - left), height: 16}),
        svg("line", {class: `stem ${kind}`, x1: left, x2: at(one.effect), y1: y, y2: y}), svg("circle", {class: kind, cx: at(one.effect), cy: y, r: 5}),
        svg("text", {class: one.drifted ? "strong" : null, x: width, y: y + 4, "text-anchor": "end"}, withUnit(one.effect, unit)));
    });
    const said = `limit ${withUnit(limit, unit)}`, half = said.length * 3.1;
    return svg("svg", {viewBox: `0 0 ${width} ${bottom + 24}`, width, height: bottom + 24, role: "img", "aria-label": label},
      rows, svg("line", {class: "bandline", x1: line, x2: line, y1: top - 2, y2: bottom}),
      svg("text", {class: "bandtext", x: Math.min(Math.max(line, half), width - half), y: 11, "text-anchor": "middle"}, said), axis(first || 0, most, log, x, bottom, "", width));
  });
}

// ----------------------------------------------------------------------------- distributions of both sides

function curvesOf(rules) {
  const drawn = (what, plot) => rules.flatMap(({measures, effect}) => measures.filter((one) => one[what]).map((one) => [one, effect])).slice(0, MOST_CURVES).map(([one, limit]) => plot(one, limit));
  const curves = drawn("curve", curvePlot), classes = drawn("classes", classPlot);
  return [curves.length ? el("div", {class: "card"}, el("h3", {}, "What drifted most: the share of samples at or below each value"), el("div", {class: "plots"}, curves)) : null,
    classes.length ? el("div", {class: "card"}, el("h3", {}, "Classes that drifted most"), el("div", {class: "plots"}, classes)) : null];
}

const share = (part) => percent(part, 1);

function curvePlot(one, limit) {
  const {curve, samples, median, unit, effect, q} = one, place = curve.at.indexOf(curve.ks_at);
  const heights = ["here", "reference"].map((side) => curve[side].map((many) => many / samples[side]));
  const [now, then] = heights.map((each) => each[place]);
  const greatest = `${share(curve.ks)} at ${withUnit(curve.ks_at, unit)}: at or below it lie ${share(then)} in the reference, ${share(now)} here`;
  const said = `${number(effect)} sd apart (limit ${number(limit)} sd, q ${number(q)}); median ${number(median.reference)} in the reference (${count(samples.reference, "sample")}), ` +
    `${withUnit(median.here, unit)} here (${count(samples.here, "sample")}); largest difference ${greatest}.`;
  const {first, last, log, cut} = reachOf(curve, heights);
  return el("div", {class: "plot ecdf"}, el("h4", {}, nameOf(one), unit && unit !== "1" ? ` (${unit})` : ""),
    drawing((width) => {
      const left = 42, top = 8, bottom = 168, x = scale(first, last, log, left + SIDE, width - SIDE), y = scale(0, 1, false, bottom, top);
      const path = (each) => `M${left} ${bottom}` + curve.at.map((value, n) => (value < first ? "" : `H${Math.min(x(value), width).toFixed(1)}${value > last ? "" : `V${y(each[n]).toFixed(1)}`}`)).join("") + `H${width}`;
      const ks = x(curve.ks_at), upper = now > then ? [now, "this run", "now"] : [then, "reference", "before"], lower = now > then ? [then, "reference", "before"] : [now, "this run", "now"];
      return svg("svg", {viewBox: `0 0 ${width} ${bottom + 22}`, width, height: bottom + 22, role: "img", "aria-label": `Cumulative distributions of ${nameOf(one)}: ${said}`},
        [0, 0.5, 1].map((each) => [svg("line", {class: "track-line", x1: left, x2: width, y1: y(each), y2: y(each)}), svg("text", {x: left - 6, y: y(each) + 4, "text-anchor": "end"}, share(each))]),
        svg("path", {class: "step before", d: path(heights[1])}), svg("path", {class: "step now", d: path(heights[0])}),
        svg("line", {class: "ks", x1: ks, x2: ks, y1: y(now), y2: y(then)}), [now, then].map((each) => svg("circle", {class: "ksdot", cx: ks, cy: y(each), r: 3.5})),
        svg("text", {class: `halo ${upper[2]}`, x: ks - 8, y: Math.max(y(upper[0]) + 4, top + 14), "text-anchor": "end"}, upper[1]),
        svg("text", {class: `halo ${lower[2]}`, x: ks + 8, y: Math.min(y(lower[0]) + 4, bottom - 6)}, lower[1]),
        svg("text", {class: "halo strong", x: ks + 8, y: (y(now) + y(then)) / 2 + 4}, `KS ${share(curve.ks)}`), axis(first, last, log, x, bottom, "", width));
    }),
    el("p", {class: "small soft"}, [said, log ? "Log axis." : "", cut ? "Far ends are cut off." : ""].filter(Boolean).join(" ")));
}

// From where to where the curves are drawn: without a few far values that would press all others together.
function reachOf({at, ks_at: ks}, heights) {
  const low = at[0], high = at.at(-1), log = low > 0 && high / low >= 50, f = log ? Math.log : (value) => value;
  const inner = at.filter((value, n) => value === ks || heights.some((each) => each[n] >= 0.01 && (n ? each[n - 1] : 0) <= 0.99 && each[n] !== (n ? each[n - 1] : 0)));
  const [a, b] = [inner[0], inner.at(-1)], room = (f(b) - f(a)) * 0.5 || Infinity, fit = (value, edge) => Math.abs(f(value) - f(edge)) <= room;
  const first = fit(low, a) ? low : a, last = fit(high, b) ? high : b;
  if (first === last) return {first: first - (Math.abs(first) || 1) / 2, last: last + (Math.abs(last) || 1) / 2, log: false, cut: false};
  return {first, last, log: log && last / first >= 50, cut: first > low || last < high};
}

// Of classes, that have no order: the shares of those that moved most.
function classPlot(one, limit) {
  const {classes, effect, q, samples} = one, ROW = 24, most = Math.max(...classes.flatMap(({here, reference}) => [here, reference])) || 1;
  const said = `total variation ${number(effect)} (limit ${number(limit)}, q ${number(q)}); ${count(samples.reference, "sample")} in the reference, ${samples.here.toLocaleString("en")} here`;
  const moves = classes.map(({name, here, reference}) => `class ${name} ${share(reference)} to ${share(here)}`).join(", ");
  return el("div", {class: "plot shares-of"}, el("h4", {}, `${nameOf(one)}: shares that moved most`),
    drawing((width) => {
      const left = Math.min(150, width * 0.35), right = width - 12, x = scale(0, most, false, left, right), bottom = 18 + classes.length * ROW, key = classes[0], ends = [x(key.reference), x(key.here)];
      const apart = Math.abs(ends[0] - ends[1]) > 70;
      return svg("svg", {viewBox: `0 0 ${width} ${bottom + 22}`, width, height: bottom + 22, role: "img", "aria-label": `${nameOf(one)}, from the reference to this run: ${moves}. ${said}`},
        classes.map(({name, here, reference}, n) => {
          const y = 18 + n * ROW + ROW / 2, [from, to] = [x(reference), x(here)];
          return svg("g", {}, svg("title", {}, `class ${name}: ${share(reference)} in the reference, ${share(here)} here`), svg("text", {class: "strong", x: 0, y: y + 4}, clipped(name, left - 8)),
            svg("line", {class: "track-line", x1: left, x2: right, y1: y, y2: y}), svg("line", {class: "ks", x1: from, x2: to, y1: y, y2: y}),
            svg("circle", {class: "before", cx: from, cy: y, r: 4.5}), svg("circle", {class: "now", cx: to, cy: y, r: 4.5}));
        }),
        [["before", "reference", 0], ["now", "this run", 1]].map(([kind, word, n]) => {
          const at = apart ? ends[n] : (ends[0] + ends[1]) / 2 + (ends[n] < ends[1 - n] || (ends[0] === ends[1] && !n) ? -35 : 35);
          return svg("text", {class: kind, x: Math.min(Math.max(at, 30), width - 30), y: 12, "text-anchor": "middle"}, word);
        }),
        ticks(0, most, false, 4).map((each) => svg("text", {x: x(each), y: bottom + 14, "text-anchor": "middle"}, share(each))));
    }),
    el("p", {class: "small soft"}, `${said}.`));
}
