"use strict";
// Elements and words. All text goes through text nodes: nothing of the user's is parsed as markup.

const SVG = "http://www.w3.org/2000/svg";

const SAID = new Set(["title", "alt", "aria-label"]);  // attributes that are shown or read out

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, SAID.has(name) ? seen(String(value)) : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== "") {
      node.append(child instanceof Node ? child : document.createTextNode(seen(String(child))));
    }
  }
  return node;
}

function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

const EMOJI = String.raw`\p{Extended_Pictographic}`;
const JOINER = String.raw`(?<!${EMOJI}\p{Emoji_Modifier}?\ufe0f?)\u200d|\u200d(?!${EMOJI})`;
const UNSEEN = new RegExp(String.raw`${JOINER}|[\u2028\u2029]|(?!\u200d)[^\P{C}\t\n]`, "gu");

// What nobody sees, or turns or breaks a line of text, is spelled out, so that a name cannot pass for another one; a
// joiner between two emoji makes one of them and can be seen.
function seen(text) {
  return text.replace(UNSEEN, (c) => {
    const number = c.codePointAt(0).toString(16);
    return number.length <= 4 ? "\\u" + number.padStart(4, "0") : "\\U" + number.padStart(8, "0");
  });
}

function tell(text) {
  document.getElementById("told").textContent = text;
}

function count(number, word, plural) {
  return `${number.toLocaleString("en")} ${number === 1 ? word : plural || word + "s"}`;
}

function number(value) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "number" || !Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (value === 0) return "0";
  if (Number.isInteger(value) && size < 1e7) return value.toLocaleString("en");
  if (size >= 1e6 || size < 1e-3) return value.toExponential(2).replace("e+", "e").replace(/\.?0+e/, "e");
  return Number(value.toPrecision(3)).toLocaleString("en", {maximumSignificantDigits: 3});
}

function withUnit(value, unit) {
  return unit && unit !== "1" ? `${number(value)} ${unit}` : number(value);
}

function interval(range, unit) {
  const [low, high] = range;
  if (low === null || low === undefined) return `at most ${withUnit(high, unit)}`;
  if (high === null || high === undefined) return `at least ${withUnit(low, unit)}`;
  return low === high ? withUnit(low, unit) : `${number(low)} to ${withUnit(high, unit)}`;
}

function percent(part, whole) {
  const share = whole ? part / whole : 0;
  if (share === 0 || share === 1) return `${share * 100} %`;
  if (share < 0.0005) return "< 0.1 %";
  if (share >= 0.9995) return "> 99.9 %";
  return `${Number((share * 100).toPrecision(share < 0.1 ? 2 : 3))} %`;
}

function bytes(size) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let place = 0;
  while (size >= 999.5 && place < units.length - 1) { size /= 1000; place += 1; }
  return `${Number(size.toPrecision(3))} ${units[place]}`;
}

// A text that one click copies, as it is and not as it is spelled.
function copyable(text) {
  const button = el("button", {type: "button", class: "key", title: "Copy", onclick: () => copy(text, button)}, text);
  return button;
}

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = el("textarea", {class: "hidden"});
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    button.focus();
  }
  button.classList.add("copied");
  tell(`Copied ${text}`);
  setTimeout(() => button.classList.remove("copied"), 1500);
}

function facts(pairs, kind) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return el("dl", {class: kind}, shown.map(([name, value]) =>
    kind === "facts" ? el("div", {}, el("dt", {}, name), el("dd", {}, value)) : [el("dt", {}, name), el("dd", {}, value)]));
}

function table(caption, heads, rows, kinds) {
  const kind = (place) => (kinds && kinds[place]) || null;
  return el("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": caption},
    el("table", {}, el("caption", {class: "hidden"}, caption),
      el("thead", {}, el("tr", {}, heads.map((head, n) => el("th", {scope: "col", class: kind(n)}, head)))),
      el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell, n) =>
        n === 0 ? el("th", {scope: "row", class: kind(n)}, cell) : el("td", {class: kind(n)}, cell)))))));
}

function choice(label, options, chosen) {
  const select = el("select", {onchange: () => chosen(select.value)},
    options.map(([value, text]) => el("option", {value}, text)));
  return {label: el("label", {}, label, select), select};
}

// The sections in the bar, each with how many there are of what is in it, where that is known.
function places(sections, numbers) {
  document.getElementById("places").hidden = false;
  document.querySelector("#places ul").append(...sections.map((one) => {
    const many = numbers[one.id];
    return el("li", {}, el("a", {href: `#${one.id}`}, one.querySelector("h2").textContent, many === undefined ? null : el("span", {}, many.toLocaleString("en"))));
  }));
}
