"use strict";
// The row of small pictures of a finding, and the dialog with the large ones.

const WIDE = 132, HIGH = 96;

const near = typeof IntersectionObserver === "undefined" ? null : new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (entry.isIntersecting) {
      near.unobserve(entry.target);
      entry.target.shown();
    }
  }
}, {rootMargin: "400px"});

// Fill a box when it comes near to what is seen: hundreds of pictures would hold up the page.
function later(box, fillIn) {
  box.shown = () => box.replaceChildren(fillIn());
  if (near) near.observe(box);
  else box.shown();
  return box;
}

const ends = (field, name) => field === name || field.startsWith(`${name}.`) || name.startsWith(`${field}.`);

// The picture of a sample that says most about some fields.
function pictureFor(sample, fields) {
  const drawn = sample.fields.filter((one) => one.kind !== "note");
  return drawn.find((one) => fields.includes(one.field)) || drawn.find((one) => fields.some((name) => ends(one.field, name))) ||
    (sample.fields.find((one) => fields.includes(one.field)) && !drawn.length ? sample.fields.find((one) => fields.includes(one.field)) : null) || drawn[0] || sample.fields[0];
}

function small(picture, fields) {
  if (picture.kind === "cloud" || picture.kind === "skeleton") {
    const canvas = el("canvas", {"aria-hidden": "true"});
    const draw = () => drawScene(canvas, sceneOf(picture), {...camera(), zoom: 1.2}, {width: WIDE, height: HIGH, ratio: 2}, {axes: false, dot: 1.6});
    draw();
    return canvas;
  }
  if (picture.kind === "projection") return projectionOf(picture, "", WIDE, "");
  if (picture.kind === "image") return imageOf(picture.url, ...blown(picture.width, picture.height, HIGH), "", "");
  if (picture.kind === "film") {
    return el("span", {class: "frames"}, picture.frames.filter((_, n) => n % 2 === 0).slice(0, 3).map(({url}) => imageOf(url, ...blown(picture.width, picture.height, WIDE / 3), "", "")));
  }
  if (picture.kind === "timeline") return sparklines(picture, fields, WIDE, HIGH);
  if (picture.kind === "text") {
    return el("span", {class: "words"}, picture.segments.slice(0, 8).map((one) => el("span", {class: `segment ${SEGMENTS[one.is] ? one.is : "plain"}`}, one.text.slice(0, 60))));
  }
  return el("span", {class: "words soft"}, picture.about.slice(0, 160));
}

function large(picture, marks, sample) {
  if (picture.kind === "cloud" || picture.kind === "skeleton") return spaceOf(picture);
  if (picture.kind === "image") return imageOf(picture.url, ...blown(picture.width, picture.height, 480), picture.about, "picture");
  if (picture.kind === "projection") return projectionShown(picture, sample);
  if (picture.kind === "film") return filmOf(picture);
  if (picture.kind === "timeline") return timelineOf(picture, marks);
  return picture.kind === "text" ? textOfSegments(picture) : null;
}

// ------------------------------------------------------------------------------------------- small pictures

function shortKey(key) {
  if (key.length <= 24) return key;
  const cut = key.indexOf("/", key.length - 24), last = key.slice(key.lastIndexOf("/") + 1);
  return cut >= 0 ? `…${key.slice(cut)}` : `${last.slice(0, 14)}…${last.slice(-14)}`;
}

function thumb(sample, finding, open) {
  const caption = el("span", {class: "caption"}, shortKey(sample.key));
  if (!sample.fields.length) {
    return el("li", {class: "undrawn"}, el("span", {class: "shot words soft"}, `Not drawn: ${sample.why.slice(0, 110)}`), caption);
  }
  const picture = pictureFor(sample, finding.fields);
  const shot = later(el("span", {class: "shot"}), () => small(picture, finding.fields));
  return el("li", {}, el("button", {type: "button", class: "thumb", "aria-haspopup": "dialog", title: sample.key,
    "aria-label": `${sample.key}, ${picture.field}. ${picture.about}`, onclick: open}, shot, caption));
}

function picturesOf(finding, run) {
  const places = run.previews.findings[finding.id] || [], samples = places.map((at) => run.previews.samples[at]).filter(Boolean);
  const drawn = samples.filter((sample) => sample.fields.length);
  if (!drawn.length) return null;  // the finding itself says what cannot be read
  const row = el("ul", {class: "thumbs", "aria-label": finding.title || `The worst samples of ${finding.rule}`}, samples.map((sample) =>
    thumb(sample, finding, () => showSample(drawn, drawn.indexOf(sample), finding))));
  const media = window.matchMedia ? window.matchMedia("(prefers-color-scheme: dark)") : null;
  if (media) media.addEventListener("change", () => row.querySelectorAll(".shot").forEach((shot) => { if (shot.shown && shot.firstChild) shot.shown(); }));
  return row;
}

function undrawnOf(run) {
  if (!run.previews || !run.previews.left_out.length) return null;
  return el("p", {class: "soft small"}, `Pictures: ${run.previews.left_out.join("; ")}.`);
}

// --------------------------------------------------------------------------------------------------- dialog

// All pictures of a sample, one below the other: those that can be seen first, then what is only said.
function sampleParts(sample, fields) {
  const film = sample.fields.find((one) => one.kind === "film"), marks = film ? film.frames.map((frame) => frame.at) : [];
  const first = pictureFor(sample, fields), drawn = sample.fields.filter((one) => one.kind !== "note" && one !== first);
  const shown = first && first.kind !== "note" ? [first, ...drawn] : drawn;
  const notes = sample.fields.filter((one) => one.kind === "note");
  const made = shown.map((picture) => ({picture, widget: large(picture, picture.kind === "timeline" ? marks : [], sample)}));
  return {
    nodes: [
      made.map(({picture, widget}) => el("section", {class: `shown ${picture.kind}`, "data-field": picture.field}, el("h4", {}, picture.field), widget, el("p", {class: "small soft"}, picture.about))),
      notes.length ? el("section", {class: "shown notes"}, el("h4", {}, "Other fields"), facts(notes.map((one) => [one.field, one.about]), "pairs")) : null,
      sample.left_out.length ? el("p", {class: "small soft"}, `Not drawn, for want of room: ${sample.left_out.join(", ")}. datacheck view shows all of them.`) : null,
    ],
    end: () => made.forEach(({widget}) => { if (widget && widget.end) widget.end(); }),
  };
}

function showSample(samples, start_, finding) {
  let at = start_, parts = null;
  const body = el("div", {class: "inside"}), title = el("h2", {id: "sample-title"}), place = el("span", {class: "soft small", role: "status"});
  const show = (to) => {
    if (parts) parts.end();
    at = (to + samples.length) % samples.length;
    const sample = samples[at];
    parts = sampleParts(sample, finding.fields);
    title.replaceChildren(copyable(sample.key), sample.split ? el("span", {class: "soft"}, ` ${sample.split}`) : "");
    place.textContent = samples.length > 1 ? `${at + 1} of ${samples.length}` : "";
    body.replaceChildren(...[parts.nodes].flat(Infinity).filter(Boolean));
    body.scrollTop = 0;
  };
  const close = el("button", {type: "button", onclick: () => dialog.close()}, "Close");
  const dialog = el("dialog", {class: "sample", "aria-labelledby": "sample-title"},
    el("div", {class: "top"}, title, el("div", {class: "group"}, place,
      samples.length > 1 ? [el("button", {type: "button", onclick: () => show(at - 1)}, "Previous"), el("button", {type: "button", onclick: () => show(at + 1)}, "Next")] : null, close)),
    el("p", {class: "said"}, `${finding.rule} ${finding.name}: ${finding.message}`), body);
  dialog.addEventListener("close", () => { parts.end(); dialog.remove(); });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  document.body.append(dialog);
  dialog.showModal();
  show(at);
  close.focus();
}
