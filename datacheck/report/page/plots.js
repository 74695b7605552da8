"use strict";
// Drawings of a field beyond histograms, by kind: lags, components, places, bars, boxes, approaches.

// A plot with its title, what it says in words for who cannot see it, and a sentence below.
function plotOf(plot, split) {
  const draw = {lags: lagsOf, ridges: ridgesOf, centroids: centroidsOf, bars: barsOf, boxes: boxesOf, approach: approachOf}[plot.kind];
  if (!draw) return null;
  const {label, said, picture} = draw(plot);
  const about = [split ? "all splits" : "", ...said].filter(Boolean).join(" · ");
  return el("div", {class: "plot", "data-kind": plot.kind},
    el("h4", {}, plot.title, plot.unit && plot.unit !== "1" ? ` (${plot.unit})` : ""),
    drawing((width) => {
      const [height, ...marks] = picture(width);
      return svg("svg", {viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `${plot.title}: ${label}`}, marks);
    }),
    about ? el("p", {class: "small soft"}, about) : null);
}

function clipped(text, room) {
  const most = Math.max(3, Math.floor(room / 6.3)), letters = [...text];
  return letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : text;
}

// ----------------------------------------------------------------------------------------------- components

const LEFT = 96, RIGHT = 96;  // names, numbers

// A histogram on one side of a line: an area of fit samples, the outline of the others; each has a height of its own.
function ridge(counts, [low, high], x, line, tall, kind) {
  const most = Math.max(...counts), wide = (high - low) / counts.length, at = (n) => x(low + n * wide).toFixed(1), up = (one) => (line - (one / most) * tall).toFixed(1);
  if (!most) return null;
  const steps = counts.map((one, n) => (one ? `${counts[n - 1] ? "" : `M${at(n)} ${line}`}V${up(one)}H${at(n + 1)}${counts[n + 1] ? "" : `V${line}`}` : ""));
  return svg("path", {class: `ridge ${kind}`, d: steps.join("")});
}

function ridgesOf(plot) {
  const {rows, shared, several, unit} = plot, tall = 15, dead = rows.filter((row) => row.low !== null && row.low === row.high);
  const own = shared ? 0 : 13, high = several ? 2 * tall + 9 + own : tall + 9 + own, axes = shared && rows.find((row) => row.edges);
  const of = (row) => (row.low === null ? "nothing finite" : row.low === row.high ? `always ${withUnit(row.low, unit)}` : `${number(row.low)} to ${withUnit(row.high, unit)}`);
  const outside = rows.filter((row) => row.outside), banded = rows.some((row) => row.band);
  const said = [several ? "above the line: the lowest value of a sample; below: the highest" : "", shared ? "" : "each on an axis of its own",
    "fit and not fit each to its own height", dead.length ? `${count(dead.length, "component")} never ${dead.length === 1 ? "changes" : "change"}` : "",
    outside.length ? `beyond the drawing: ${outside.map((row) => `${row.name} in ${count(row.outside, "sample")}`).join(", ")}` : "", banded ? "green: allowed" : ""];
  const picture = (width) => {
    const right = Math.max(LEFT + 40, width - RIGHT), bottom = rows.length * high;
    const scaleOf = (row) => scale(...(row.edges || (axes ? axes.edges : [0, 1])), false, LEFT, right);
    const marks = rows.map((row, n) => {
      const line = n * high + tall + 4, x = scaleOf(row), [a, b] = row.edges || (axes ? axes.edges : [0, 1]), end = several ? line + tall : line;
      const inside = (value) => value >= a && value <= b;
      const band = row.band && (row.edges || axes) ? limits(row.band, a, b, x, line - tall, end) : null;
      const drawn = row.counts ? row.counts.map((counts, k) => ridge(counts, row.edges, x, line, k < 2 ? tall : -tall, k % 2 ? "unfit" : "fit")) : null;
      const constant = row.counts ? null : [axes && inside(row.low) ? svg("line", {class: "dead", x1: x(row.low), x2: x(row.low), y1: line - tall, y2: end}) : null,
        axes && row.low !== null ? null : svg("text", {class: "deadtext", x: (LEFT + right) / 2, y: line - 2, "text-anchor": "middle"}, row.low === null ? "nothing finite" : row.low === row.high ? "never changes" : "not drawn")];
      return svg("g", {}, svg("title", {}, `${row.name}: ${of(row)}${row.band ? `, allowed ${interval(row.band, unit)}` : ""}`),
        svg("rect", {class: "bed", x: LEFT, y: line - tall, width: right - LEFT, height: end - line + tall}), band,
        svg("line", {class: "track-line", x1: LEFT, x2: right, y1: line, y2: line}), drawn, constant,
        svg("text", {class: "strong", x: 0, y: line}, clipped(row.name, LEFT - 8)),
        row.low === null || (row.low !== row.high && !several) ? svg("text", {x: right + 6, y: line}, row.low === null ? "" : clipped(`${number(row.low)} … ${number(row.high)}`, RIGHT - 6))
          : row.low === row.high ? svg("text", {class: "deadtext", x: right + 6, y: line}, `= ${number(row.low)}`)
            : [svg("text", {x: right + 6, y: line - 3}, `≥ ${number(row.low)}`), svg("text", {x: right + 6, y: line + 11}, `≤ ${number(row.high)}`)],
        row.edges && !shared ? [svg("text", {class: "edge", x: LEFT, y: end + 11}, number(a)), svg("text", {class: "edge", x: right, y: end + 11, "text-anchor": "end"}, number(b))] : null);
    });
    const under = axes ? axis(...axes.edges, false, scale(...axes.edges, false, LEFT, right), bottom + 2, "", width) : null;
    return [bottom + (axes ? 24 : 4), marks, under];
  };
  return {label: rows.map((row) => `${row.name} ${of(row)}${row.band ? ` (allowed ${interval(row.band, "")})` : ""}`).join("; "), said, picture};
}

// What is allowed, as far as it lies within what is drawn.
function limits([low, high], a, b, x, top, bottom) {
  const from = low === null ? a : Math.min(Math.max(low, a), b), to = high === null ? b : Math.min(Math.max(high, a), b);
  const line = (value) => (value !== null && value >= a && value <= b ? svg("line", {class: "bandline", x1: x(value), x2: x(value), y1: top, y2: bottom}) : null);
  return [to > from ? svg("rect", {class: "band", x: x(from), y: top, width: x(to) - x(from), height: bottom - top}) : null, line(low), line(high)];
}

// ------------------------------------------------------------------------------------------------- episodes

function lagsOf(plot) {
  const {lags, quartiles: [low, median, high], expected} = plot, best = median.indexOf(Math.max(...median)), steps = (lag) => count(lag, "step");
  const wanted = `${expected.join(" or ")} ${plot.declared ? "is declared" : "is usual"}`;
  const said = [`correlation at each lag [steps], median of ${count(plot.n, "episode")} and its quartiles`, `best at ${lags[best]} (${number(median[best])}); ${wanted}`,
    plot.reading === "delta" ? "read as changes" : "read as targets", plot.other === null ? "" : `as ${plot.reading === "delta" ? "targets" : "changes"} at most ${number(plot.other)}`];
  const picture = (width) => {
    const least = Math.min(0, ...low), bottom = 132, first = lags[0], last = lags.at(-1);
    const x = scale(first - 0.5, last + 0.5, false, 34, width - 6), y = scale(least, 1, false, bottom - 4, 8), at = (values) => values.map((one, n) => `${x(lags[n]).toFixed(1)} ${y(one).toFixed(1)}`);
    return [bottom + 20, expected.filter((lag) => lag >= first && lag <= last).map((lag) => svg("rect", {class: "band", x: x(lag - 0.5), y: 4, width: x(lag + 0.5) - x(lag - 0.5), height: bottom - 4})),
      ticks(least, 1, false, 4).map((one) => [svg("line", {class: "track-line", x1: 34, x2: width - 6, y1: y(one), y2: y(one)}), svg("text", {x: 28, y: y(one) + 4, "text-anchor": "end"}, number(one))]),
      svg("path", {class: "spread", d: `M${at(high).join("L")}L${[...at(low)].reverse().join("L")}Z`}), svg("path", {class: "median", d: `M${at(median).join("L")}`}),
      median.map((one, n) => svg("circle", {class: n === best ? "best" : "dot", cx: x(lags[n]), cy: y(one), r: n === best ? 5 : 2.5}, svg("title", {}, `lag ${lags[n]}: ${number(one)} (${number(low[n])} to ${number(high[n])})`))),
      axis(first, last, false, x, bottom, "", width)];
  };
  return {label: `best after ${steps(lags[best])}, correlation ${number(median[best])}; ${wanted}. ${lags.map((lag, n) => `${lag}: ${number(median[n])}`).join(", ")}`, said, picture};
}

// ------------------------------------------------------------------------------------------------- places

function centroidsOf(plot) {
  const {low, high, cells, planes, unit, origin, half, median, of, drawn} = plot, [fit, unfit] = of, NAMES = "xyz", wide = high[0] - low[0];
  const said = ["left from above (x, y), right from the side (x, z); darker: more samples", origin ? "cross: the origin" : "the origin lies outside",
    half > 0 ? `median size ${withUnit(2 * half, unit)}` + (origin && half < wide * 0.7 ? " (dotted circle)" : "") : "", plot.centered ? `declared: centered: ${plot.centered}` : "",
    plot.outside ? `${count(plot.outside, "sample")} beyond the drawing` : "",
    drawn[0] < fit || drawn[1] < unfit ? `drawn: ${drawn[0].toLocaleString("en")} of the fit samples, ${drawn[1].toLocaleString("en")} of those not fit` : ""];
  const many = (inside, kind) => (drawn[kind] < of[kind] ? `about ${count(Math.round((inside * of[kind]) / drawn[kind]), "sample")}` : count(inside, "sample"));
  const picture = (width) => {
    const side = Math.min(250, (width - 78) / 2), pads = [36, side + 76];
    return [side + 40, planes.map(({axes: [h, v], counts}, n) => {
      const x = scale(low[h], high[h], false, 0, side), y = scale(low[v], high[v], false, side + 4, 4), size = side / cells;
      const zero = [low[h] < 0 && high[h] > 0, low[v] < 0 && high[v] > 0];
      return svg("g", {transform: `translate(${pads[n]} 0)`}, svg("rect", {class: "bed", x: 0, y: 4, width: side, height: side}),
        counts.map((found, kind) => cellsOf(found, kind, cells).map(([across, up, share, inside]) => svg("rect", {class: kind ? "unfit" : "fit", "fill-opacity": share.toFixed(2),
          x: (across * size + kind * size * 0.2).toFixed(1), y: (side + 4 - (up + 1) * size + kind * size * 0.2).toFixed(1), width: (size * (kind ? 0.6 : 1)).toFixed(1), height: (size * (kind ? 0.6 : 1)).toFixed(1)},
        svg("title", {}, `${many(inside, kind)}${kind ? ", not fit" : ""}`)))),
        zero[0] ? svg("line", {class: "origin", x1: x(0), x2: x(0), y1: 4, y2: side + 4}) : null, zero[1] ? svg("line", {class: "origin", x1: 0, x2: side, y1: y(0), y2: y(0)}) : null,
        origin && half > 0 && half < wide * 0.7 ? svg("path", {class: "origin", d: circle(x, y, half, [low[h], high[h], low[v], high[v]])}) : null,
        svg("text", {class: "strong", x: -6, y: 14, "text-anchor": "end"}, NAMES[v]), edgesOf(low[v], high[v], side).map((one) => [
          svg("line", {class: "axis", x1: -3, x2: 0, y1: y(one), y2: y(one)}), y(one) > 26 ? svg("text", {class: "edge", x: -5, y: y(one) + 3, "text-anchor": "end"}, number(one)) : null]),
        edgesOf(low[h], high[h], side).map((one) => [svg("line", {class: "axis", x1: x(one), x2: x(one), y1: side + 4, y2: side + 7}), svg("text", {class: "edge", x: x(one), y: side + 17, "text-anchor": "middle"}, number(one))]), svg("text", {class: "strong", x: side, y: side + 32, "text-anchor": "end"}, NAMES[h]));
    })];
  };
  return {label: `median at ${median.map((one, n) => `${NAMES[n]} ${number(one)}`).join(", ")} ${unit}; ${count(fit, "fit sample")}, ${unfit.toLocaleString("en")} not fit; ${origin ? "the origin is within the drawing" : "the origin lies outside"}`, said, picture};
}

function cellsOf(found, kind, cells) {
  const made = [];
  let most = 1;
  for (let n = 1; n < found.length; n += 2) most = Math.max(most, found[n]);
  for (let n = 0; n < found.length; n += 2) {
    made.push([found[n] % cells, Math.floor(found[n] / cells), 0.35 + 0.65 * Math.sqrt(found[n + 1] / most), found[n + 1]]);
  }
  return made;
}

// The part of a circle about the origin that lies within the frame.
function circle(x, y, radius, [left, right, under, over]) {
  let path = "", pen = false;
  for (let n = 0; n <= 72; n += 1) {
    const a = radius * Math.cos((n * Math.PI) / 36), b = radius * Math.sin((n * Math.PI) / 36);
    const within = a >= left && a <= right && b >= under && b <= over;
    if (within) path += `${pen ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`;
    pen = within;
  }
  return path || "M0 0";
}

function edgesOf(low, high, side) {
  return ticks(low, high, false, Math.max(2, Math.floor(side / 48)));
}

// -------------------------------------------------------------------------------------- bars and box plots

function barsOf(plot) {
  const {rows, what} = plot, sums = rows.map(({parts}) => parts[0] + parts[1]), most = Math.max(1, ...sums), ROW = 34;
  const told = (row, n) => `${count(sums[n], what)}${row.parts[1] ? `, ${row.parts[1].toLocaleString("en")} ${what === "sample" ? "" : "of samples "}not fit` : ""}${row.said ? `, ${row.said}` : ""}`;
  const picture = (width) => [rows.length * ROW + 4, rows.map((row, n) => {
    const y = n * ROW, good = (row.parts[0] / most) * width, bad = (row.parts[1] / most) * width, words = `${sums[n].toLocaleString("en")}${row.said ? ` · ${row.said}` : ""}`;
    return svg("g", {}, svg("title", {}, `${row.name}: ${told(row, n)}`), svg("text", {class: "strong", x: 0, y: y + 13}, clipped(row.name, width - words.length * 6.3 - 12)),
      svg("text", {x: width, y: y + 13, "text-anchor": "end"}, words), svg("rect", {class: "track", x: 0, y: y + 18, width, height: 10, rx: 2}),
      svg("rect", {class: "fit", x: 0, y: y + 18, width: good, height: 10}), svg("rect", {class: "unfit", x: good, y: y + 18, width: bad, height: 10}));
  })];
  return {label: rows.map((row, n) => `${row.name}: ${told(row, n)}`).join("; "), said: [plot.about], picture};
}

// Poses by the cosine of their way to a thing against up.
function approachOf(plot) {
  const [fit, unfit] = plot.counts, bins = fit.length, sums = fit.map((one, n) => one + unfit[n]), all = sums.reduce((sum, one) => sum + one, 0), most = Math.max(...sums);
  const edge = (n) => Math.round(((2 * n) / bins - 1) * 100) / 100, told = (from, to) => sums.slice(from, to).reduce((sum, one) => sum + one, 0);
  const WAYS = ["from above", "from the side", "from below"], cuts = [0, Math.round(bins / 4), Math.round((3 * bins) / 4), bins];
  const shares = WAYS.map((way, n) => `${way} ${number((100 * told(cuts[n], cuts[n + 1])) / all)} %`), others = unfit.reduce((sum, one) => sum + one, 0);
  const picture = (width) => {
    const x = scale(-1, 1, false, 2, width - 2), bottom = 96, tall = (one) => (one ? Math.max(2, (one / most) * (bottom - 6)) : 0);
    return [bottom + 38, fit.map((good, n) => {
      const bad = unfit[n], left = x(edge(n)), wide = Math.max(1, x(edge(n + 1)) - left - 1), high = tall(good), more = tall(bad);
      return sums[n] ? svg("g", {}, svg("title", {}, `${edge(n)} to ${edge(n + 1)}: ${count(sums[n], "pose")}${bad ? `, ${bad.toLocaleString("en")} of samples not fit` : ""}`),
        good ? svg("rect", {class: "fit", x: left, width: wide, y: bottom - high, height: high}) : null,
        bad ? svg("rect", {class: "unfit", x: left, width: wide, y: bottom - high - more, height: more}) : null) : null;
    }), axis(-1, 1, false, x, bottom, "", width),
    WAYS.map((way, n) => svg("text", {class: "strong", x: [2, width / 2, width - 2][n], y: bottom + 34, "text-anchor": ["start", "middle", "end"][n]}, way))];
  };
  const words = `${count(all, "pose")}${others ? `, ${others.toLocaleString("en")} of samples not fit` : ""}`;
  return {label: `${words}; ${shares.join(", ")}`, said: [words, shares.join(", "), `${plot.about} From the side: -0.5 to 0.5`], picture};
}

function boxesOf(plot) {
  const {rows, unit, of: [fit, unfit]} = plot, ROW = 20, main = fit ? "fit" : "unfit";
  const places = rows.flatMap(({p, band, unfit: other}) => [p[0], p[4], ...(band || []), ...(other === null ? [] : [other])]).filter((one) => Number.isFinite(one));
  const log = Math.min(...places) > 0 && Math.max(...places) / Math.min(...places) > 20, first = Math.min(...places), last = Math.max(...places);
  const said = ["box: the middle half; line: 1 % to 99 %; green: allowed", `${count(fit || unfit, "sample")} ${fit ? "fit" : "not fit"}`,
    fit && unfit ? `red: the median of ${unfit.toLocaleString("en")} not fit` : "", log ? "log axis" : ""];
  const picture = (width) => {
    const x = scale(first, last, log, LEFT, width - 8), bottom = rows.length * ROW;
    return [bottom + 24, rows.map(({name, p, band, unfit: other}, n) => {
      const y = n * ROW + ROW / 2;
      return svg("g", {}, svg("title", {}, `${name}: median ${withUnit(p[2], unit)}, 1 % ${number(p[0])}, 99 % ${number(p[4])}${other === null ? "" : `; not fit ${number(other)}`}`),
        band ? svg("rect", {class: "band", x: x(band[0]), y: y - 8, width: x(band[1]) - x(band[0]), height: 16}) : null,
        svg("line", {class: "axis", x1: x(p[0]), x2: x(p[4]), y1: y, y2: y}),
        svg("rect", {class: main, x: x(p[1]), y: y - 6, width: Math.max(2, x(p[3]) - x(p[1])), height: 12}), svg("line", {class: "median", x1: x(p[2]), x2: x(p[2]), y1: y - 7, y2: y + 7}),
        other === null ? null : svg("circle", {class: "unfit", cx: x(other), cy: y, r: 3}), svg("text", {class: "strong", x: 0, y: y + 4}, clipped(name, LEFT - 8)));
    }), axis(first, last, log, x, bottom + 2, "", width)];
  };
  return {label: rows.map(({name, p, unfit: other}) => `${name} ${withUnit(p[2], unit)}${other === null ? "" : ` (not fit ${number(other)})`}`).join("; "), said, picture};
}

// ---------------------------------------------------------------------------------------------- other units

// Units in which samples would be allowed that are not as the field is declared: {unit, band, many}, the likeliest first.
function otherUnits(measure, split) {
  const own = (many) => many.reduce((sum, one, n) => sum + (split === "" || measure.groups[n] === split ? one : 0), 0);
  return measure.units.map(({unit, band, many}) => ({unit, band, many: own(many)}))
    .filter(({many}) => many).sort((a, b) => b.many - a.many).slice(0, 3);
}

function unitsOf(measure, meant, x, top, bottom) {
  const first = measure.edges[0], last = measure.edges.at(-1);
  return meant.map(({unit, band: [low, high]}, n) => {
    if (low > last || high < first) return null;  // what it would be lies beside the bins
    const from = x(Math.max(low, first)), to = x(Math.min(high, last)), y = top + 4 + 13 * n;
    return svg("g", {class: "meant"}, svg("path", {d: `M${from} ${y + 4}V${y}H${to}V${y + 4}`}), svg("text", {x: Math.min((from + to) / 2, x(last) - 18), y: y + 11, "text-anchor": "middle"}, `if ${unit}`));
  });
}
