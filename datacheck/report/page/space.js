"use strict";
// A scene that can be turned: by pointer, wheel, keys and buttons; points by WebGL, or on the plain canvas where there is none.

const VERTEX = `attribute vec3 position; attribute vec3 colour; uniform mat3 turn; uniform vec2 scale; uniform float size; varying vec3 shade;
void main() { vec3 seen = turn * position; gl_Position = vec4(seen.xy * scale, seen.z * 0.5, 1.0); gl_PointSize = size; shade = colour; }`;
const FRAGMENT = `precision mediump float; varying vec3 shade;
void main() { if (length(gl_PointCoord - 0.5) > 0.5) discard; gl_FragColor = vec4(shade, 1.0); }`;
const STEP = Math.PI / 18;

// Draws points by WebGL; null where the browser refuses it.
function pointsOn(canvas, scene) {
  try {
    const gl = canvas.getContext("webgl", {antialias: true, failIfMajorPerformanceCaveat: true});
    const program = gl && twgl.createProgramInfo(gl, [VERTEX, FRAGMENT]);
    if (!program || !program.program) return null;
    const buffers = twgl.createBufferInfoFromArrays(gl, {
      position: {numComponents: 3, data: scene.at}, colour: {numComponents: 3, data: scene.colours, type: Uint8Array, normalize: true},
    });
    const draw = (view, size) => {
      canvas.width = Math.round(size.width * size.ratio);
      canvas.height = Math.round(size.height * size.ratio);
      const [a, b, c] = turned(view), least = Math.min(size.width, size.height), k = 2 * FIT * view.zoom * least;
      gl.viewport(0, 0, canvas.width, canvas.height);
      gl.clearColor(0, 0, 0, 0);
      gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
      gl.enable(gl.DEPTH_TEST);
      gl.useProgram(program.program);
      twgl.setBuffersAndAttributes(gl, program, buffers);
      twgl.setUniforms(program, {
        turn: [a[0], b[0], c[0], a[1], b[1], c[1], a[2], b[2], c[2]], scale: [k / size.width, k / size.height],
        size: (scene.at.length < 900 ? 6 : 4) * size.ratio,
      });
      twgl.drawBufferInfo(gl, buffers, gl.POINTS);
    };
    const end = () => { const lost = gl.getExtension("WEBGL_lose_context"); if (lost) lost.loseContext(); };
    return {draw, end};
  } catch {
    return null;
  }
}

function spaceOf(picture) {
  const scene = sceneOf(picture), over = el("canvas", {"aria-hidden": "true"});
  let below = el("canvas", {"aria-hidden": "true"}), view = camera();
  let points = picture.kind === "cloud" ? pointsOn(below, scene) : null;
  const stage = el("div", {class: "stage", tabindex: "0", role: "application", "aria-roledescription": "3D view",
    "aria-label": `${picture.about} Arrow keys turn it, plus and minus zoom, Home sets it back.`}, points ? below : null, over);
  let waiting = false;
  const draw = () => {
    waiting = false;
    const size = {width: stage.clientWidth, height: stage.clientHeight, ratio: Math.min(window.devicePixelRatio || 1, 2)};
    if (size.width < 20) return;
    if (points) points.draw(view, size);
    drawScene(over, scene, view, size, {points: !points, dot: 3.4});
    stage.dataset.drawn = points ? "webgl" : "canvas";
    stage.dataset.view = [view.yaw, view.pitch, view.zoom].map((one) => one.toFixed(3)).join(" ");
  };
  const redraw = () => { if (!waiting) { waiting = true; requestAnimationFrame(draw); } };
  const turn = (yaw, pitch) => { view.yaw += yaw; view.pitch = Math.max(-Math.PI / 2, Math.min(Math.PI / 2, view.pitch + pitch)); redraw(); };
  const zoom = (by) => { view.zoom = Math.max(0.2, Math.min(40, view.zoom * by)); redraw(); };
  const look = (yaw, pitch) => { view = {yaw, pitch, zoom: 1}; redraw(); };
  below.addEventListener("webglcontextlost", () => { if (points) { points = null; below.remove(); redraw(); } });
  const keys = {
    ArrowLeft: () => turn(STEP, 0), ArrowRight: () => turn(-STEP, 0), ArrowUp: () => turn(0, STEP), ArrowDown: () => turn(0, -STEP),
    "+": () => zoom(1.25), "=": () => zoom(1.25), "-": () => zoom(0.8), Home: () => { view = camera(); redraw(); },
  };
  stage.addEventListener("keydown", (event) => {
    const act = event.ctrlKey || event.metaKey || event.altKey ? null : keys[event.key];
    if (act) { act(); event.preventDefault(); }
  });
  stage.addEventListener("wheel", (event) => {
    if (document.activeElement !== stage) return;  // whoever scrolls past it wants to scroll
    zoom(Math.exp(-event.deltaY * 0.0015));
    event.preventDefault();
  }, {passive: false});
  stage.addEventListener("pointerdown", (event) => { stage.setPointerCapture(event.pointerId); stage.dataset.held = "yes"; });
  stage.addEventListener("pointermove", (event) => { if (stage.dataset.held) turn(event.movementX * -0.01, event.movementY * 0.01); });
  for (const name of ["pointerup", "pointercancel"]) stage.addEventListener(name, () => { delete stage.dataset.held; });
  stage.drawn = redraw;
  if (watched) watched.observe(stage);
  else redraw();
  const button = (text, act) => el("button", {type: "button", onclick: act}, text);
  const made = el("div", {class: "space"}, stage,
    el("div", {class: "controls"}, el("div", {class: "group", role: "group", "aria-label": "View"},
      button("Front", () => look(0, 0)), button("Side", () => look(Math.PI / 2, 0)), button("Top", () => look(0, Math.PI / 2)),
      button("Larger", () => zoom(1.25)), button("Smaller", () => zoom(0.8)), button("Set back", () => { view = camera(); redraw(); })),
      el("span", {class: "soft small"}, "Drag to turn, click and scroll to zoom; or arrow keys, plus and minus.")),
    swatches(scene.legend));
  const media = window.matchMedia ? window.matchMedia("(prefers-color-scheme: dark)") : null;
  if (media) media.addEventListener("change", redraw);
  made.end = () => {
    if (media) media.removeEventListener("change", redraw);
    if (watched) watched.unobserve(stage);
    const gone = points;
    points = null;
    if (gone) gone.end();
  };
  return made;
}

function swatches(legend) {
  if (!legend || !legend.length) return null;
  return el("ul", {class: "legend swatches"}, legend.map(([colour, text]) => el("li", {},
    svg("svg", {viewBox: "0 0 12 12", width: 12, height: 12, "aria-hidden": "true"}, svg("rect", {x: 0, y: 0, width: 12, height: 12, rx: 2, fill: `rgb(${colour})`})), text)));
}
