"use strict";
// Joints of failing samples over the mean of fit ones: root on root, turned to fit, from the front and from the side.

const PANEL = 320, TALL = 260, PAD = 8, APART = 0.12;  // a panel; between its two views, of their height
const VIEWS = [0, 2];  // what is drawn across: x from the front, z from the side; y is up in both

function overlayOf(one) {
  if (one.why) return el("p", {class: "small soft"}, `No joints over the mean of fit samples: ${one.why}.`);
  const {fit, fit_mirrored: mirrored, unit, worst, chains, spread, guessed, skeleton} = one, root = skeleton ? "wrist on wrist" : "first joint on first joint";
  const of = `the mean of ${count(fit, "fit sample")}`, off = Math.hypot(...spread) / Math.sqrt(spread.length);
  const about = [`left from the front, right from the side; no sample is mirrored, none scaled but where it is said; fit samples lie ${distance(off, unit)} off their mean (rms)`,
    mirrored ? `mirror images of ${count(mirrored, "fit sample")} fit better, too: left and right hands may be among them` : "",
    guessed ? `the schema names no skeleton; bones as in ${skeleton}, in which they are shortest` : chains.length ? "" : "bones are not known: dotted lines lead to the same joint of the mean", ...one.left_out];
  return el("div", {class: "overlay"}, el("h4", {tabindex: "-1"}, `The worst over ${of}, ${root}, turned to fit`),
    el("ul", {class: "legend"}, [["of-none", of], ["of-then", "how far they lie from it (rms)"], ["of-error", "the failing sample"]].map(([colour, word]) => el("li", {class: colour}, el("span", {}, word)))),
    worst.length ? el("ul", {class: "panels"}, worst.map((sample) => panelOf(sample, one, `over ${of}, ${root}`)))
      : el("p", {class: "small"}, "No failing sample could be laid over it."),
    el("p", {class: "small soft"}, about.filter(Boolean).join(" · ")));
}

// Of a finding's card the way to the drawing of its samples' joints, which is with the other drawings of the field.
function overlayLink(finding, run) {
  const n = run.fields.findIndex(({name}) => finding.fields.includes(name) && (run.previews.overlays || []).some((one) => one.field === name && (one.worst || []).some(({rule, key}) => rule === finding.rule || finding.examples.includes(key))));
  return n < 0 ? null : el("button", {type: "button", class: "link small", onclick: () => {
    const toggle = document.querySelector(`[aria-controls="field-${n}"]`);
    if (toggle.getAttribute("aria-expanded") === "false") toggle.click();
    const heading = document.querySelector(`#field-${n} .overlay h4`);
    heading.scrollIntoView();
    heading.focus();
  }}, `The worst of ${run.fields[n].name} over the mean of fit samples`);
}

function distance(value, unit) {
  return unit === "m" && value < 0.1 ? `${number(Number((value * 1000).toPrecision(2)))} mm` : withUnit(Number(value.toPrecision(3)), unit);
}

// Where what is drawn lies, of each axis: the mean, its spread, and of the sample what is not far beyond.
function frameOf({joints, spread}, sample) {
  const room = 2 * Math.max(...joints.flat().map(Math.abs));
  return [0, 1, 2].map((axis) => {
    const low = Math.min(...joints.map((joint, n) => joint[axis] - spread[n])), high = Math.max(...joints.map((joint, n) => joint[axis] + spread[n]));
    const others = sample.joints.filter(Boolean).map((joint) => Math.min(Math.max(joint[axis], low - room), high + room));
    return [Math.min(low, ...others), Math.max(high, ...others)];
  });
}

function saidOf(sample, {unit, chains}, beyond) {
  const {ratio, drawn, rms, rms_drawn: near, rms_mirrored: mirrored, unfinite, moment} = sample, what = chains.length ? "bones" : "distances to the root";
  return [
    moment ? `only ${moment} is drawn` : "",
    drawn === 1 ? `${distance(rms, unit)} off the mean (rms)` : `${distance(rms, unit)} off the mean (rms), as drawn ${distance(near, unit)}`,
    ratio === null ? `no ${what} to compare` : ratio ? `${what} ${number(ratio)} × as long as in fit samples` : `${what} of length 0`,
    drawn === 1 ? "" : drawn > 1 ? `drawn at 1/${number(drawn)} of its size` : `drawn at ${number(1 / drawn)} times its size`,
    mirrored === null ? "" : `mirrored fits better: ${distance(mirrored, unit)} against ${distance(near, unit)}`,
    unfinite ? `${count(unfinite, "joint")} not finite, not drawn` : "", beyond ? `${count(beyond, "joint")} beyond the drawing` : "",
  ].filter(Boolean);
}

function panelOf(sample, one, where) {
  const {joints, spread, chains} = one, frame = frameOf(one, sample), [x, y, z] = frame.map(([low, high]) => high - low), gap = APART * y, wide = x + z + gap;
  const by = Math.min((PANEL - 2 * PAD) / (wide || 1), (TALL - 2 * PAD) / (y || 1)), left = (PANEL - wide * by) / 2, top = (TALL - y * by) / 2;
  const at = (joint, across) => [left + (joint[across] - frame[across][0] + (across ? x + gap : 0)) * by, top + (frame[1][1] - joint[1]) * by].map((each) => Number(each.toFixed(1)));
  const line = ([x1, y1], [x2, y2], kind) => svg("line", {class: kind, x1, y1, x2, y2});
  const bones = (places, across, kind) => chains.map(([, chain]) => chain.slice(1).map((joint, n) => [places[chain[n]], places[joint]]).filter(([from, to]) => from && to).map(([from, to]) => line(at(from, across), at(to, across), kind)));
  const dots = (places, across, kind, size) => places.map((joint, n) => joint && [n, ...at(joint, across)]).filter(Boolean).map(([n, cx, cy]) => svg("circle", {class: kind, cx, cy, r: size(n)}));
  const beyond = sample.joints.filter((joint) => joint && joint.some((value, axis) => value < frame[axis][0] || value > frame[axis][1])).length, said = saidOf(sample, one, beyond);
  return el("li", {}, svg("svg", {viewBox: `0 0 ${PANEL} ${TALL}`, role: "img", "aria-label": `${sample.key} ${where}: ${said.join("; ")}`},
    svg("rect", {class: "bed", x: 0, y: 0, width: PANEL, height: TALL}),
    VIEWS.map((across) => svg("g", {},
      dots(joints, across, "about", (n) => Math.max(1, spread[n] * by).toFixed(1)), bones(joints, across, "bone mean"), chains.length ? null : dots(joints, across, "joint mean", () => 2),
      chains.length ? null : joints.map((joint, n) => sample.joints[n] && line(at(joint, across), at(sample.joints[n], across), "astray")),
      bones(sample.joints, across, "bone own"), dots(sample.joints, across, "joint own", () => 2.2)))),
    copyable(sample.key), el("span", {class: "small soft"}, ` ${[sample.rule, sample.split].filter(Boolean).join(" · ")}`), el("ul", {class: "small"}, said.map((each) => el("li", {}, each))));
}
