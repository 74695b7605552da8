"use strict";
// Points and bones in space: how a picture's numbers become a scene, and how a scene is drawn on a plain canvas.

const FULL = 65535;
const FIT = 0.52;  // of the shorter side: what a ball around all points has for a radius
const PALETTE = [[59, 130, 246], [234, 138, 24], [22, 163, 98], [219, 60, 70], [139, 92, 246], [14, 165, 190],
  [214, 90, 180], [132, 120, 20], [100, 180, 60], [170, 100, 60], [90, 110, 210], [138, 145, 158]];
const HEIGHTS = [[68, 60, 160], [44, 118, 168], [31, 158, 137], [122, 196, 80], [238, 214, 60]];
// Which data axes (and signs) are across, away and up when the named one points up: rotations, never mirror images.
const UPRIGHT = {
  z: [[0, 1], [1, 1], [2, 1]], "-z": [[0, 1], [1, -1], [2, -1]], y: [[0, 1], [2, -1], [1, 1]],
  "-y": [[0, 1], [2, 1], [1, -1]], x: [[1, 1], [2, 1], [0, 1]], "-x": [[1, 1], [2, -1], [0, -1]],
};

function octets(text) {
  const raw = atob(text);
  return Uint8Array.from(raw, (sign) => sign.charCodeAt(0));
}

function words(text) {
  const found = octets(text);
  return Uint16Array.from({length: found.length >> 1}, (_, n) => found[2 * n] | (found[2 * n + 1] << 8));
}

function mixed(share) {
  const place = Math.min(Math.max(share, 0), 1) * (HEIGHTS.length - 1), first = Math.min(Math.floor(place), HEIGHTS.length - 2);
  return HEIGHTS[first].map((one, n) => Math.round(one + (HEIGHTS[first + 1][n] - one) * (place - first)));
}

// {at: floats (points, 3) in a ball of radius 1, upright; colours: bytes (points, 3); bones: [from, to, colour];
//  low, high: data corners; radius: what 1 is in the unit; axes: which data axis lies along each of ours}
function sceneOf(picture) {
  const [low, high] = picture.box, half = low.map((one, n) => high[n] / 2 - one / 2);
  const longest = Math.max(...half), shares = half.map((one) => (longest > 0 ? one / longest : 0));
  const ball = Math.hypot(...shares) || 1, axes = UPRIGHT[picture.up] || UPRIGHT.z;
  const extent = axes.map(([axis]) => shares[axis] / ball);
  const scene = {low, high, axes, extent, unit: picture.unit, radius: longest * ball || 1, wide: longest > 0, bones: [], kind: picture.kind};
  const put = (at, n, shareOf) => axes.forEach(([axis, sign], place) => { at[3 * n + place] = sign * (2 * shareOf(axis) - 1) * extent[place]; });
  if (picture.kind === "cloud") {
    const numbers = words(picture.xyz), many = numbers.length / 3;
    scene.at = new Float32Array(3 * many);
    for (let n = 0; n < many; n += 1) put(scene.at, n, (axis) => (shares[axis] > 0 ? numbers[3 * n + axis] / FULL : 0.5));
    return Object.assign(scene, coloursOf(picture, scene.at, many, extent));
  }
  const known = picture.joints.map((joint, n) => (joint ? n : -1)).filter((n) => n >= 0);
  scene.at = new Float32Array(3 * known.length);
  known.forEach((joint, n) => put(scene.at, n, (axis) => (half[axis] > 0 ? (picture.joints[joint][axis] / 2 - low[axis] / 2) / half[axis] : 0.5)));
  scene.colours = new Uint8Array(3 * known.length).fill(138);
  scene.legend = [];
  picture.chains.forEach(([finger, chain], number) => {
    const colour = PALETTE[number % PALETTE.length];
    scene.legend.push([colour, finger]);
    chain.forEach((joint, place) => {
      const n = known.indexOf(joint), before = place ? known.indexOf(chain[place - 1]) : -1;
      if (n >= 0 && place) scene.colours.set(colour, 3 * n);
      if (n >= 0 && before >= 0) scene.bones.push([before, n, colour]);
    });
  });
  return scene;
}

function coloursOf(picture, at, many, extent) {
  const {colour} = picture, colours = new Uint8Array(3 * many);
  if (colour.by === "rgb") return {colours: octets(colour.rgb).slice(0, 3 * many), legend: []};
  if (colour.by === "label") {
    const labels = octets(colour.label);
    const of = (label) => PALETTE[label === colour.names.length - 1 && / others$/.test(colour.names[label]) ? PALETTE.length - 1 : label % PALETTE.length];
    for (let n = 0; n < many; n += 1) colours.set(of(labels[n]), 3 * n);
    return {colours, legend: colour.names.map((name, n) => [of(n), `${name}: ${count(colour.counts[n], "point")}`])};
  }
  for (let n = 0; n < many; n += 1) colours.set(mixed(extent[2] > 0 ? at[3 * n + 2] / extent[2] / 2 + 0.5 : 0.5), 3 * n);
  return {colours, legend: [[HEIGHTS[0], "lowest"], [HEIGHTS[2], "middle"], [HEIGHTS[4], `highest along ${picture.up}`]]};
}

function camera() {
  return {yaw: -0.6, pitch: 0.45, zoom: 1};
}

// The rows of the rotation: across, up, towards the back.
function turned({yaw, pitch}) {
  const c = Math.cos(yaw), s = Math.sin(yaw), cp = Math.cos(pitch), sp = Math.sin(pitch);
  return [[c, s, 0], [-s * sp, c * sp, cp], [-s * cp, c * cp, -sp]];
}

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim() || "#888";
}

// Draw a scene with {width, height, ratio} on a 2D canvas; `points` off: only what lies over them.
function drawScene(canvas, scene, view, size, {points = true, axes = true, dot = 2.2} = {}) {
  canvas.width = Math.round(size.width * size.ratio);
  canvas.height = Math.round(size.height * size.ratio);
  const pen = canvas.getContext("2d"), rows = turned(view), k = Math.min(size.width, size.height) * FIT * view.zoom;
  pen.setTransform(size.ratio, 0, 0, size.ratio, (size.width / 2) * size.ratio, (size.height / 2) * size.ratio);
  const seenAt = (x, y, z) => rows.map(([a, b, c], n) => (a * x + b * y + c * z) * (n === 1 ? -k : n === 0 ? k : 1));
  if (axes && scene.wide) drawBox(pen, scene, seenAt, size);
  const places = Array.from({length: scene.at.length / 3}, (_, n) => seenAt(scene.at[3 * n], scene.at[3 * n + 1], scene.at[3 * n + 2]));
  pen.lineWidth = Math.max(2, dot);
  pen.lineCap = "round";
  for (const [from, to, colour] of scene.bones) {
    pen.strokeStyle = `rgb(${colour})`;
    pen.beginPath();
    pen.moveTo(places[from][0], places[from][1]);
    pen.lineTo(places[to][0], places[to][1]);
    pen.stroke();
  }
  if (points) {
    const order = places.map((_, n) => n).sort((a, b) => places[b][2] - places[a][2]);
    const size_ = scene.kind === "skeleton" || places.length < 300 ? dot * 1.7 : dot;
    for (const n of order) {
      pen.fillStyle = `rgb(${scene.colours[3 * n]},${scene.colours[3 * n + 1]},${scene.colours[3 * n + 2]})`;
      pen.beginPath();
      pen.arc(places[n][0], places[n][1], size_ / 2 + 0.3, 0, 7);
      pen.fill();
    }
  }
  if (axes && scene.wide) drawScale(pen, scene, k, size);
  else if (axes) drawOnePlace(pen, scene);
}

// The edges of the box that all points lie in, with the length of three of them.
function drawBox(pen, scene, seenAt, size) {
  const [x, y, z] = scene.extent, corner = (n) => seenAt(n & 1 ? x : -x, n & 2 ? y : -y, n & 4 ? z : -z);
  pen.lineWidth = 1;
  pen.strokeStyle = css("--line");
  for (let n = 0; n < 8; n += 1) {
    for (const bit of [1, 2, 4]) {
      if (n & bit) continue;
      const [ax, ay] = corner(n), [bx, by] = corner(n | bit);
      pen.beginPath();
      pen.moveTo(ax, ay);
      pen.lineTo(bx, by);
      pen.stroke();
    }
  }
  // at the bottom, the corner nearest to whoever looks carries two names, the leftmost one the third
  const least = (place) => [0, 1, 2, 3].reduce((best, n) => (corner(n)[place] < corner(best)[place] ? n : best), 0);
  const nearest = least(2), left = least(0);
  pen.font = "12px system-ui, sans-serif";
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  [1, 2, 4].forEach((bit, place) => {
    const from = bit === 4 ? left : nearest, [ax, ay] = corner(from), [bx, by] = corner(from ^ bit), axis = scene.axes[place][0];
    const text = `${"xyz"[axis]} ${withUnit(scene.high[axis] - scene.low[axis], scene.unit)}`;
    const mx = (ax + bx) / 2, my = (ay + by) / 2, far = Math.hypot(mx, my) || 1;
    const most = size.width / 2 - pen.measureText(text).width / 2 - 4, tx = Math.max(-most, Math.min(most, mx + (mx / far) * 22)), ty = my + (my / far) * 14;
    pen.strokeStyle = css("--soft");
    pen.beginPath();
    pen.moveTo(ax, ay);
    pen.lineTo(bx, by);
    pen.stroke();
    pen.lineWidth = 3;
    pen.strokeStyle = css("--code");
    pen.strokeText(text, tx, ty);
    pen.lineWidth = 1;
    pen.fillStyle = css("--ink");
    pen.fillText(text, tx, ty);
  });
}

// All points coincide: there is no length to show.
function drawOnePlace(pen, scene) {
  pen.fillStyle = css("--ink");
  pen.font = "12px system-ui, sans-serif";
  pen.textAlign = "center";
  pen.fillText(`all points lie at ${scene.low.map((one) => number(one)).join(", ")} ${scene.unit}`, 0, 26);
}

// A bar of a round length: the view is parallel, so it is true everywhere.
function drawScale(pen, scene, k, size) {
  const unitLength = k / scene.radius, rough = (size.width * 0.22) / unitLength;
  if (!(rough > 0) || !Number.isFinite(rough)) return;
  const power = 10 ** Math.floor(Math.log10(rough)), length = [5, 2, 1].map((n) => n * power).find((n) => n <= rough) || power;
  const x = -size.width / 2 + 14, y = size.height / 2 - 14, wide = length * unitLength;
  pen.strokeStyle = css("--ink");
  pen.lineWidth = 2;
  pen.beginPath();
  pen.moveTo(x, y - 4); pen.lineTo(x, y); pen.lineTo(x + wide, y); pen.lineTo(x + wide, y - 4);
  pen.stroke();
  pen.fillStyle = css("--ink");
  pen.textAlign = "left";
  pen.fillText(withUnit(length, scene.unit) + (scene.unit ? "" : " (no unit declared)"), x, y - 12);
}
