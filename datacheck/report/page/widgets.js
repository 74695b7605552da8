"use strict";
// Pictures that lie in a plane: images, films, timelines, texts. Each has a small form and a large one.

const SAFE_IMAGE = /^data:image\/(png|jpeg);base64,[A-Za-z0-9+/=]*$/;

function imageOf(url, width, height, text, kind) {
  if (!SAFE_IMAGE.test(url)) return el("span", {class: kind}, text);
  return el("img", {src: url, width, height, alt: text, class: kind, draggable: "false"});
}

// How large an image is drawn: whole multiples of small ones, so that their pixels can be seen.
function blown(width, height, most) {
  const by = Math.max(width, height) * 2 <= most ? Math.floor(most / Math.max(width, height)) : most / Math.max(width, height);
  return [Math.round(width * by), Math.round(height * by)];
}

function moment(at, fps) {
  return `step ${at.toLocaleString("en")}` + (fps ? `, ${number(at / fps)} s` : "");
}

function filmOf(picture) {
  const [width, height] = blown(picture.width, picture.height, 160);
  return el("ul", {class: "strip"}, picture.frames.map(({at, url}) => el("li", {},
    imageOf(url, width, height, `Frame at ${moment(at, picture.fps)}`, "frame"), el("span", {class: "small soft"}, moment(at, picture.fps)))));
}

// --------------------------------------------------------------------------------------------- projections

// Joints where their camera sees them, on its image or within the edges of it; dashed: by other axes, where they fit.
function projectionOf(picture, under, most, text) {
  const {size: [width, height], pixels, chains, other} = picture, room = Math.max(width, height) / 12, wide = width + 2 * room, high = height + 2 * room;
  const by = Math.max(wide, high) / most, bare = !text && chains.length;
  const drawn = (at, kind) => at ? svg("g", {class: kind},
    chains.map(([, chain], n) => chain.slice(1).map((joint, place) => [at[chain[place]], at[joint]]).filter(([from, to]) => from && to)
      .map(([[x1, y1], [x2, y2]]) => svg("line", {class: "bone", x1, y1, x2, y2, stroke: `rgb(${PALETTE[n % PALETTE.length]})`}))),
    bare ? null : at.filter(Boolean).map(([cx, cy]) => svg("circle", {class: "joint", cx, cy, r: 2.4 * by}))) : null;
  return svg("svg", {class: `projection${text ? "" : " small"}`, viewBox: `${-room} ${-room} ${wide} ${high}`, width: Math.round(wide / by), height: Math.round(high / by), ...(text ? {role: "img", "aria-label": text} : {"aria-hidden": "true"})},
    svg("rect", {class: "bed", x: 0, y: 0, width, height}),
    under && SAFE_IMAGE.test(under) ? svg("image", {href: under, x: 0, y: 0, width, height, preserveAspectRatio: "none"}) : null,
    drawn(other && other.pixels, "other"), drawn(pixels, "own"), svg("rect", {class: "border", x: 0, y: 0, width, height}));
}

function projectionShown(picture, sample) {
  const under = sample.fields.find((one) => one.kind === "image" && one.field === picture.over);
  return el("div", {}, projectionOf(picture, under ? under.url : "", 480, picture.about),
    swatches(picture.chains.map(([finger], n) => [PALETTE[n % PALETTE.length], finger])),
    picture.other ? el("p", {class: "small soft"}, `Dashed: where they would be ${picture.other.name}.`) : null);
}

// ------------------------------------------------------------------------------------------------ timelines

// A line, and a dot for a step that has no neighbour to draw one to.
function lineOf(dim, x, y) {
  const known = (n) => dim.values[n] !== null && dim.values[n] !== undefined;
  const lone = dim.at.filter((_, n) => known(n) && !known(n - 1) && !known(n + 1));
  return [svg("path", {class: "series", d: pathOf(dim, x, y)}),
    lone.map((at) => svg("circle", {class: "lone", cx: x(at), cy: y(dim.values[dim.at.indexOf(at)]), r: 2}))];
}

function pathOf(dim, x, y) {
  let path = "", pen = false;
  dim.at.forEach((at, n) => {
    const value = dim.values[n];
    if (value === null) { pen = false; return; }
    path += `${pen ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    pen = true;
  });
  return path;
}

function span(dim) {
  return dim.low === null ? [0, 1] : dim.low === dim.high ? [dim.low - 1, dim.high + 1] : [dim.low, dim.high];
}

// Gaps: steps whose value is not finite.
function gapsOf(dim, x, top, bottom) {
  return dim.at.filter((_, n) => dim.values[n] === null).map((at) => svg("line", {class: "gap", x1: x(at), x2: x(at), y1: top, y2: bottom}));
}

// What is not to be trained on: the steps before, between and behind the ranges of valid.json.
function outside(picture) {
  if (!picture.ranges) return [];
  const stops = [0, ...picture.ranges.map(([, stop]) => stop)], starts = [...picture.ranges.map(([first]) => first), picture.steps];
  return stops.map((stop, n) => [stop, Math.min(starts[n], picture.steps)]).filter(([first, stop]) => first < stop);
}

function outOf(picture, x, top, bottom) {
  return outside(picture).map(([first, stop]) => svg("rect", {class: "out", x: x(first), y: top, width: Math.max(1, x(stop - 1) - x(first)), height: bottom - top}));
}

function timelineOf(picture, marks) {
  const ROW = 46, LEFT = 96, last = Math.max(1, picture.steps - 1);
  const draw = (width) => {
    const right = width - 84, x = scale(0, last, false, LEFT, right), bottom = picture.dims.length * ROW + 4;
    const rows = picture.dims.map((dim, n) => {
      const [low, high] = span(dim), top = n * ROW + 6, y = scale(low, high, false, top + ROW - 14, top);
      return [svg("rect", {class: "lane", x: LEFT, y: top - 2, width: Math.max(1, right - LEFT), height: ROW - 10}),
        gapsOf(dim, x, top - 2, top + ROW - 12), lineOf(dim, x, y),
        svg("text", {x: 0, y: top + 18, class: "strong"}, shortened(dim.name, 14)),
        svg("text", {x: right + 6, y: top + 8}, dim.low === null ? "not finite" : number(dim.high)),
        svg("text", {x: right + 6, y: top + ROW - 14}, dim.low === null ? "" : number(dim.low))];
    });
    const lines = marks.map((at) => svg("line", {class: "mark", x1: x(at), x2: x(at), y1: 0, y2: bottom}));
    const under = axis(0, picture.fps ? last / picture.fps : last, false, scale(0, picture.fps ? last / picture.fps : last, false, LEFT, right), bottom + 2, picture.fps ? "s" : "", width);
    return svg("svg", {viewBox: `0 0 ${width} ${bottom + 26}`, width, height: bottom + 26, role: "img", "aria-label": told(picture)}, rows, outOf(picture, scale(0, last, false, LEFT, width - 84), 0, bottom), lines, under);
  };
  const out = outside(picture).reduce((sum, [first, stop]) => sum + (stop - first), 0);
  return el("div", {}, drawing(draw),
    picture.unit ? el("p", {class: "small soft"}, `Values in ${picture.unit}; steps ${picture.fps ? "in seconds" : "by number"}.`) : null,
    picture.ranges ? el("p", {class: "small soft"}, `Shaded: ${count(out, "step")} of ${picture.steps.toLocaleString("en")} not to be trained on (ranges in valid.json).`) : null,
    marks.length ? el("p", {class: "small soft"}, "Dotted lines: the frames of the film.") : null);
}

function told(picture) {
  return `${picture.about} ${picture.dims.map((dim) => `${dim.name}: ${dim.low === null ? "nothing finite" : `${number(dim.low)} to ${number(dim.high)}`}`).join("; ")}`;
}

function shortened(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

// The dimensions that a finding is about, where it names some: actions.gripper, of actions.
function sparklines(picture, fields, width, height) {
  const parts = fields.filter((name) => name.startsWith(`${picture.field}.`)).map((name) => name.slice(picture.field.length + 1));
  const meant = picture.dims.filter((dim) => parts.some((part) => dim.name === part || dim.name.startsWith(`${part} `)));
  const dims = (meant.length ? meant : picture.dims).slice(0, 6), row = height / dims.length;
  return svg("svg", {viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true"}, dims.map((dim, n) => {
    const [low, high] = span(dim), top = n * row + 2, x = scale(0, Math.max(1, picture.steps - 1), false, 3, width - 3);
    return [outOf(picture, x, top - 2, top + row - 2), gapsOf(dim, x, top, top + row - 4), lineOf(dim, x, scale(low, high, false, top + row - 4, top))];
  }));
}

// ---------------------------------------------------------------------------------------------------- texts

const SEGMENTS = {supervised: "trained on", masked: "masked: read, not trained on", template: "chat template", padding: "padding",
  cut: "cut off: behind the model's length", plain: "not known what is trained on"};

function textOfSegments(picture) {
  const kinds = [...new Set(picture.segments.map((one) => one.is))].filter((kind) => SEGMENTS[kind]);
  return el("div", {class: "text"},
    kinds.length === 1 && kinds[0] === "plain" ? null : el("ul", {class: "legend marks"}, kinds.map((kind) => el("li", {}, el("span", {class: `segment ${kind}`}, kind), ` ${SEGMENTS[kind]}`))),
    el("div", {class: "segments", tabindex: "0", role: "region", "aria-label": picture.about}, picture.segments.map((one) => [
      one.who ? el("b", {class: "who"}, one.who) : null,
      el("span", {class: `segment ${SEGMENTS[one.is] ? one.is : "plain"}`}, el("span", {class: "hidden"}, `${one.is}: `), one.text,
        one.left_out ? el("i", {class: "soft"}, one.tokens === null ? ` … ${count(one.left_out, "more character")}` : ` … ${count(one.tokens, "token")} in all`) : null), one.who ? el("br") : null])),
    picture.more ? el("p", {class: "small soft"}, `${count(picture.more, "more segment")} not shown.`) : null);
}
