"use strict";
// The sample table: searched, filtered, sorted, fifty rows at a time.

const PAGE = 50;
const KEY = 0, SPLIT = 1, STATUS = 2, CODES = 3, REASON = 4, MEASURES = 5;

function samplesOf(run) {
  const {rows, measures} = run.samples, {total, failing} = run.of_samples;
  const state = {text: "", split: "", code: "", status: "", sort: null, down: false, page: 0};
  const body = el("tbody"), said = el("p", {class: "soft small", role: "status"});
  const previous = el("button", {type: "button", onclick: () => turn(-1)}, "Previous");
  const next = el("button", {type: "button", onclick: () => turn(1)}, "Next");
  const heads = [["Sample", KEY], ["Split", SPLIT], ["Status", STATUS], ["Fails", CODES],
    ...measures.map((one, n) => [`${one.field ? `${one.field}: ` : ""}${one.label}${one.unit ? ` (${one.unit})` : ""}`, MEASURES + n])];
  const splits = [...new Set(rows.map((row) => row[SPLIT]))].filter(Boolean).sort();
  const codes = [...new Set(rows.flatMap((row) => row[CODES].split(" ")))].filter(Boolean).sort();

  const shown = () => {
    const brushed = (brush.chosen && chosenRows(run, brush.chosen)) || (() => true);
    const found = rows.filter((row, n) => brushed(row, n) && (!state.split || row[SPLIT] === state.split) && (!state.status || row[STATUS] === state.status) &&
      (!state.code || row[CODES].split(" ").includes(state.code)) && (!state.text || `${row[KEY]} ${row[CODES]} ${row[REASON]}`.toLowerCase().includes(state.text)));
    if (state.sort === null) return found;
    return found.sort((a, b) => {
      const one = a[state.sort], other = b[state.sort];
      if (one === null || other === null) return (one === null) - (other === null);
      return (one < other ? -1 : one > other ? 1 : 0) * (state.down ? -1 : 1);
    });
  };
  const render = () => {
    const found = shown(), pages = Math.max(1, Math.ceil(found.length / PAGE));
    state.page = Math.max(0, Math.min(state.page, pages - 1));
    const from = state.page * PAGE, part = found.slice(from, from + PAGE);
    body.replaceChildren(...part.map((row) => el("tr", {}, el("th", {scope: "row", class: "wide"}, copyable(row[KEY]), row[REASON] ? el("div", {class: "small soft"}, row[REASON]) : null),
      el("td", {}, row[SPLIT]), el("td", {}, badge(row[STATUS], {fit: "pass", "not fit": "error", warned: "warning"}[row[STATUS]] || "plain")),
      el("td", {}, row[CODES]), measures.map((_, n) => el("td", {class: "number"}, number(row[MEASURES + n]))))));
    if (!part.length) body.append(el("tr", {}, el("td", {colspan: heads.length}, "This choice has no sample in this page.")));
    said.textContent = found.length ? `${(from + 1).toLocaleString("en")} to ${(from + part.length).toLocaleString("en")} of ${count(found.length, "sample")}` : "none";
    previous.disabled = state.page === 0;
    next.disabled = state.page >= pages - 1;
  };
  const turn = (by) => { state.page += by; render(); };
  const set = (name) => (value) => { state[name] = value; state.page = 0; render(); };
  const search = el("input", {type: "search", placeholder: "key, code, reason", oninput: () => set("text")(search.value.trim().toLowerCase())});
  const bySplit = choice("Split", [["", "all"], ...splits.map((name) => [name, name])], set("split"));
  const byCode = choice("Fails", [["", "anything or nothing"], ...codes.map((code) => [code, code])], set("code"));
  const byStatus = choice("Status", [["", "all"], ...["not fit", "warned", "fit", "unreadable", "skipped"].map((word) => [word, word])], set("status"));
  const columns = heads.map(([head, place]) => {
    const cell = el("th", {scope: "col", class: place >= MEASURES ? "number" : null}, el("button", {type: "button", onclick: () => {
      state.down = state.sort === place && !state.down;
      state.sort = place;
      columns.forEach((other) => other.removeAttribute("aria-sort"));
      cell.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      set("page")(0);
    }}, head));
    return cell;
  });
  render();
  brush.heard.push(() => set("page")(0));

  const held = rows.length === total ? `All ${count(total, "sample")}`
    : `${rows.length.toLocaleString("en")} of ${count(total, "sample")}: ` + (rows.filter((row) => row[CODES]).length >= failing
      ? `all ${failing.toLocaleString("en")} that fail anything, and some of the others` : `some of each kind of the ${failing.toLocaleString("en")} that fail anything`);
  const made = section("samples", "Samples", `${held}. Those that fail come first. All rows are in samples.parquet.`,
    el("div", {class: "controls"}, el("label", {}, "Search samples", search), splits.length ? bySplit.label : null, byStatus.label, codes.length ? byCode.label : null),
    chosenOf(run, () => search.focus({preventScroll: true})),
    el("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": "Samples"}, el("table", {}, el("caption", {class: "hidden"}, "Samples"), el("thead", {}, el("tr", {}, columns)), body)),
    el("div", {class: "controls"}, previous, next, said));
  const show = (finding) => {
    const has = codes.includes(finding.rule);
    Object.assign(state, {text: "", split: splits.includes(finding.split) ? finding.split : "", code: has ? finding.rule : "", status: "", page: 0});
    search.value = "";
    if (brush.chosen) choose(null);
    bySplit.select.value = state.split;
    byCode.select.value = state.code;
    byStatus.select.value = "";
    render();
    made.scrollIntoView();
    search.focus({preventScroll: true});
  };
  return {made, show};
}
