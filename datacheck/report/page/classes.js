"use strict";
// How often each class stands in each split: a table whose cells are the more coloured the larger the share is.

function classesOf(run) {
  if (!run.classes.length) return null;
  const several = run.classes.some(({splits}) => splits.length > 1), then = run.classes.some((one) => one.then);
  return section("classes", "Classes", "Which share of the labels of each split is of which class" + (then ? ", beside the same split of the reference" : "") + "; the more colour, the larger." +
    (several || then ? " First those whose shares differ most." : ""), run.classes.map(classTable));
}

function classTable(one) {
  const {field, splits, samples, of, rows, rest, then, what} = one, title = `Share of the ${what}s of ${field} by class`;
  const name = (split) => split || (splits.length > 1 ? "without a split" : "all samples"), sides = then ? 2 : 1;
  const shares = rows.flatMap(({counts, then: past}) => [...counts.map((many, n) => many / of[n]), ...(past || []).map((many, n) => (then[n] ? many / then[n] : 0))]);
  const most = Math.max(...shares);
  const line = (head, {counts, then: past}, dark) => el("tr", {}, el("th", {scope: "row"}, head),
    counts.flatMap((many, n) => [shareCell(many, of[n], dark), ...(then ? [shareCell(past[n], then[n], dark)] : [])]));
  const total = (now, past) => (many, n) => [el("td", {class: "number"}, now(many, n)), then ? el("td", {class: "number"}, past(n)) : null];
  return el("div", {class: "card"}, el("h3", {}, field, el("span", {class: "soft small"}, ` share of ${what}s`)),
    el("div", {class: "scroll heat", tabindex: "0", role: "region", "aria-label": title}, el("table", {}, el("caption", {class: "hidden"}, title),
      el("thead", {}, el("tr", {}, el("th", {scope: "col", rowspan: sides}, "Class"), splits.map((split) => el("th", {scope: then ? "colgroup" : "col", colspan: sides, class: then ? null : "number"}, name(split)))),
        then ? el("tr", {}, splits.map(() => [el("th", {scope: "col", class: "number"}, "now"), el("th", {scope: "col", class: "number"}, "reference")])) : null),
      el("tbody", {}, rows.map((row) => line(row.name, row, most)), rest ? line(count(rest.classes, "other"), rest, Infinity) : null),
      el("tfoot", {}, el("tr", {}, el("th", {scope: "row"}, `All ${what}s`), of.map(total((many) => many.toLocaleString("en"), (n) => (then[n] ? then[n].toLocaleString("en") : "none")))),
        what === "sample" ? null : el("tr", {}, el("th", {scope: "row"}, "Samples with some"), samples.map(total((many) => many.toLocaleString("en"), () => "")))))),
    classNotes(one, name).map((text) => el("p", {class: "small soft"}, text)));
}

// Its colour is full where it is as large as `most`.
function shareCell(many, of, most) {
  if (!of) return el("td", {class: "number"}, "–");
  const cell = el("td", {class: many ? "number" : "number lacks"}, many ? percent(many, of) : "none");
  cell.style.setProperty("--heat", `${Math.round(70 * Math.sqrt(Math.min(1, many / of / most)))}%`);
  return cell;
}

function classNotes({splits, more_splits: more, without, left_out: left, folded, nowhere, rest}, name) {
  const lacking = rest ? rest.lacking.map((many, n) => (many ? `${name(splits[n])} lacks ${many}` : "")).filter(Boolean) : [];
  const differ = rest && rest.most !== null ? ` differ by at most ${number(100 * rest.most)} percentage points` : "";
  return [
    rest && (differ || lacking.length) ? `The ${count(rest.classes, "other")}:${differ ? ` shares${differ}` : ""}${lacking.length ? `; of them ${lacking.join(", ")}` : ""}.` : "",
    nowhere.many ? `Declared, and in no sample: ${nowhere.names.join(", ")}${nowhere.many > nowhere.names.length ? ` and ${(nowhere.many - nowhere.names.length).toLocaleString("en")} more` : ""}.` : "",
    folded ? "Classes are counted by their number modulo 64: those that share it are one row, and one of them hides that another is missing." : "",
    without.length ? `No labels: ${without.map(name).join(", ")}.` : "",
    more ? `${count(more, "more split")} with labels did not fit into this table.` : "",
    left ? `Left out: ${count(left, "sample")} that ${left === 1 ? "fails" : "fail"} DC109 or DC404.` : "",
  ].filter(Boolean);
}
