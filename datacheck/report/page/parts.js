"use strict";
// The sections: verdict, findings, splits, fields, drift, rules, provenance.

const RANK = {error: 0, warning: 1, info: 2};
const DRIFT = ["DC901", "DC902", "DC903"];
const MOST_DRIFTED = 6;
const LEAKS = ["DC801", "DC802", "DC803", "DC804", "DC805"];

function badge(word, kind) {
  return el("span", {class: `badge ${kind || word}`}, word);
}

function verdictOf(run) {
  const {samples, splits} = run.dataset, {status, valid, counts} = run.verdict;
  const listed = samples.listed, unfit = listed - valid;
  const unseen = samples.unreadable + samples.skipped, known = run.suppressed.length + run.left_out.suppressed;
  const sentence = run.fitness[0].toUpperCase() + run.fitness.slice(1);
  const lacking = [
    samples.unreadable ? `${count(samples.unreadable, "sample")} could not be read` : "", samples.skipped ? `${count(samples.skipped, "sample")} skipped` : "",
    run.unchecked.length ? `${count(run.unchecked.length + run.left_out.unchecked, "thing")} not looked at` : "", run.crashes.length ? count(run.crashes.length + run.left_out.crashes, "crash", "crashes") : "",
  ].filter(Boolean);
  const parts = [[valid, "good", "of-ok", "fit"], [Math.max(0, unfit - unseen), "unfit", "of-error", "not fit"],
    [unseen, "none", "of-none", "not read"]];
  return [
    el("div", {class: "verdict"},
      el("span", {class: `word ${status}`}, {pass: "OK", fail: "FAIL", crash: "CRASH"}[status] || status),
      el("h1", {}, sentence)),
    sharesOf(parts, listed),
    facts([
      ["Dataset", run.dataset.root], ["Schema", run.schema.name],
      ["Findings", `${count(counts.error, "error")}, ${count(counts.warning, "warning")}` + (counts.info ? `, ${counts.info} for information` : "") +
        (known ? `; ${known} known to the baseline` : "")],
      ["Complete", lacking.length ? el("a", {href: run.unchecked.length || run.crashes.length ? "#rules" : "#samples"}, `no: ${lacking.join(", ")}`) : "yes, everything was looked at"],
      ["Files", `${count(run.dataset.files, "file")}, ${bytes(run.dataset.bytes)}`],
      ["Splits", Object.keys(splits).length ? `${Object.keys(splits).slice(0, 6).join(", ")}${Object.keys(splits).length > 6 ? " …" : ""}` : "none"],
      ["Scanned", `${run.run.started.replace("T", " ").replace("Z", " UTC")}, in ${number(run.run.seconds)}\u00a0s`],
      ["Since the scan before", run.run.since ? sinceOf(run.run.since) : null],
      ["Digest of the data", el("code", {}, run.dataset.digest)],
    ], "facts"),
  ];
}

// What is new beside the scan before, what it alone found, and what besides the data is another.
function sinceOf({started, new: fresh, gone, other}) {
  const names = gone.ids.slice(0, 3).map((name) => clipped(name, 400)).join(", ") + (gone.count > 3 ? ", …" : "");
  const told = [fresh.count ? count(fresh.count, "new finding") : "", gone.count ? `${gone.count.toLocaleString("en")} no longer found: ${names}` : ""].filter(Boolean);
  return `${told.join("; ") || "nothing new"} (${started.replace("T", " ").replace("Z", " UTC")}${other.length ? `, with ${other.map((what) => `another ${what}`).join(" and ")}` : ""})`;
}

// A bar of what makes up a whole, and in words: [size, kind of the drawing, colour of the legend, word].
function sharesOf(parts, whole) {
  let from = 0;
  const drawn = parts.map(([size, kind]) => {
    const rect = svg("rect", {class: kind, x: from, width: whole ? (size / whole) * 1000 : 0, height: 14});
    from += whole ? (size / whole) * 1000 : 0;
    return rect;
  });
  return [el("div", {class: "shares"}, svg("svg", {viewBox: "0 0 1000 14", preserveAspectRatio: "none", "aria-hidden": "true"}, drawn)),
    el("ul", {class: "legend"}, parts.filter(([size]) => size).map(([size, , colour, word]) =>
      el("li", {class: colour}, el("span", {}, `${size.toLocaleString("en")} ${word} (${percent(size, whole)})`))))];
}

function section(id, title, about, ...children) {
  return el("section", {id, "aria-labelledby": `${id}-title`},
    el("h2", {id: `${id}-title`}, title), about ? el("p", {class: "soft"}, about) : null, children);
}

// --------------------------------------------------------------------------------------------- findings

function findingsOf(run, show) {
  if (!run.findings.length) {
    return section("findings", "Findings", null, el("p", {class: "card"}, run.suppressed.length ? "Nothing new was found." : "Nothing was found."), knownOf(run, show));
  }
  const cards = run.findings.map((finding) => card(finding, run, show));
  const left = run.left_out.findings;
  let chosen = "all", wanted = "";
  const empty = el("p", {class: "card", hidden: true}, "This choice has no finding.");
  const apply = () => {
    let count_ = 0;
    run.findings.forEach((finding, n) => {
      const fits = (chosen === "all" || finding.severity === chosen) && textOf(finding).includes(wanted);
      cards[n].hidden = !fits;
      count_ += fits;
    });
    empty.hidden = count_ > 0;
    tell(`${count(count_, "finding")} shown`);
  };
  const kinds = ["all", ...["error", "warning", "info"].filter((kind) => run.findings.some((one) => one.severity === kind))];
  const buttons = kinds.map((kind) => el("button", {
    type: "button", "aria-pressed": String(kind === "all"), "data-kind": kind,
    onclick: () => {
      chosen = kind;
      buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.kind === kind)));
      apply();
    },
  }, `${kind === "all" ? "All" : kind} (${kind === "all" ? cards.length : run.findings.filter((one) => one.severity === kind).length})`));
  const search = el("input", {type: "search", placeholder: "code, field, text", oninput: () => { wanted = search.value.trim().toLowerCase(); apply(); }});
  return section("findings", "Findings", "One card per cause, worst first. An error makes a sample unfit for training; a warning asks for a look.",
    el("div", {class: "controls"}, el("div", {class: "group", role: "group", "aria-label": "Severity"}, buttons),
      el("label", {}, "Search findings", search)),
    run.previews ? undrawnOf(run) : null, cards, empty, left ? el("p", {class: "card"}, `${count(left, "more finding")} did not fit into this page.`) : null, knownOf(run, show));
}

// What a baseline knows: it counts for nothing but what is fit.
function knownOf(run, show) {
  const known = run.suppressed, left = run.left_out.suppressed;
  if (!known.length && !left) return null;
  const rows = known.map((finding) => [el("span", {}, badge(finding.severity), `${finding.rule} ${finding.name}`), whereOf(finding).join(" · "), finding.message,
    finding.failed ? el("button", {type: "button", class: "link", onclick: () => show(finding)}, finding.failed.toLocaleString("en")) : "dataset", finding.suppressed]);
  return el("details", {id: "known"}, el("summary", {}, `Known to the baseline, not counted above (${(known.length + left).toLocaleString("en")})`),
    table("Known to the baseline", ["Rule", "Field and split", "What", "Samples", "Reason"], rows, [null, null, "wide", "number", "wide"]),
    el("p", {class: "soft"}, "A sample with a known error is still not fit for training.", left ? ` ${count(left, "more finding")} did not fit into this page.` : ""));
}

function whereOf(finding) {
  return [finding.fields.map((name) => (name === "*" ? "fields not in the schema" : name)).join(", "), finding.split].filter(Boolean);
}

function textOf(finding) {
  return [finding.rule, finding.name, ...finding.fields, finding.message, finding.split, ...finding.examples].join(" ").toLowerCase();
}

function card(finding, run, show) {
  const where = whereOf(finding);
  const extent = finding.failed ? `${finding.failed.toLocaleString("en")} of ${count(finding.of, "sample")} (${percent(finding.failed, finding.of)})`
    : "the dataset as a whole";
  const known = Object.entries(finding.hides || {});
  const hidden = known.map(([code, many]) => (many === finding.failed ? code : `${code} (${many.toLocaleString("en")})`)).join(", ");
  const fresh = run.suppressed.length > 0 || / --baseline[ =]/.test(run.run.command);
  return el("article", {class: `card finding ${finding.severity}`, "data-rule": finding.rule},
    el("div", {class: "top"},
      el("h3", {}, badge(finding.severity), `${finding.rule} ${finding.name}`, where.length ? el("span", {class: "soft"}, ` · ${where.join(" · ")}`) : null),
      el("span", {class: "soft small"}, fresh ? badge("new since the baseline", "plain") : null,
        run.run.since && run.run.since.new.ids.includes(finding.id) ? badge("new since the scan before", "plain") : null, extent)),
    el("p", {class: "said"}, finding.message),
    causeOf(finding), numberLine(finding), run.previews ? [picturesOf(finding, run), overlayLink(finding, run)] : null,
    facts([
      ["Examples", finding.examples.length ? el("div", {class: "keys"}, finding.examples.map(copyable),
        finding.failed ? el("button", {type: "button", class: "link", onclick: () => show(finding)},
          finding.more ? `and ${finding.more.toLocaleString("en")} more: show in the table` : "show in the table") : null) : null],
      ["Fix", finding.fix],
      ["Hides", hidden ? `${hidden}: not judged on these samples` : null],
    ], "pairs"),
    el("div", {class: "foot small"}, /^[\p{L}\w][\p{L}\w.:-]*$/u.test(finding.rule) ? copyable(`datacheck explain ${finding.rule}`) : null, suppression(finding, run), numbersOf(finding)));
}

function causeOf(finding) {
  const {cause, failed, message} = finding;
  if (!cause || message.includes(cause.text)) return null;
  const rescue = cause.explains !== null && failed && !cause.text.includes(`${cause.explains.toLocaleString("en")} of`)
    ? ` (explains ${cause.explains.toLocaleString("en")} of ${failed.toLocaleString("en")})` : "";
  const others = cause.alternatives.length && !cause.alternatives.every((one) => cause.text.includes(one)) ? `; or ${cause.alternatives.join(" or ")}` : "";
  return el("p", {class: "cause"}, `Cause: ${cause.text}${rescue}${others}`);
}

function suppression(finding, {folder, dataset}) {
  if (finding.severity === "info") return null;
  const share = finding.of ? Math.min(100, Math.ceil((finding.failed / finding.of) * 1000) / 10) : 100;
  const keys = finding.examples.map((key) => JSON.stringify(key)).join(", ");
  const lines = ["rules:", finding.failed ? `  ${finding.rule}: {allow: ${share}%}   # so many samples may fail`
    : `  ${finding.rule}: {severity: info}   # told, and nothing more`];
  if (keys && finding.failed) lines.push("# or, for single samples:", `#  ${finding.rule}: {ignore: [${keys}], reason: "who looked, when, why"}`);
  return el("details", {}, el("summary", {}, "If this is meant"),
    el("p", {}, "A wider range in the schema is the first choice. Else, in the schema:"), el("pre", {tabindex: "0"}, lines.join("\n")),
    dataset.files ? el("p", {}, "Or leave everything that is known now untold from here on (the samples stay unfit):") : null,  // not of a loader
    dataset.files ? el("div", {class: "keys"}, copyable(`datacheck baseline ${folder} -o baseline.json --reason "why"`)) : null);
}

function numbersOf(finding) {
  const said = {measured: finding.measured, expected: finding.expected};
  if (!Object.keys(finding.measured).length && !Object.keys(finding.expected).length) return null;
  return el("details", {}, el("summary", {}, "The numbers behind it"), el("pre", {tabindex: "0"}, JSON.stringify(said, null, 1)));
}

// --------------------------------------------------------------------------------------- splits and drift

function splitsOf(run) {
  const splits = Object.entries(run.dataset.splits);
  const leaks = [...run.findings, ...run.suppressed].filter((finding) => LEAKS.includes(finding.rule));
  if (!splits.length && !leaks.length) return null;
  const rules = run.rules.filter((rule) => LEAKS.includes(rule.code));
  const passed = rules.filter((rule) => rule.status === "pass").map((rule) => `${rule.code} ${rule.name}`);
  const others = rules.filter((rule) => !["pass", "fail"].includes(rule.status));
  const rows = splits.map(([name, {samples, valid}]) => [name, samples.toLocaleString("en"), valid.toLocaleString("en"), percent(valid, samples), shareBar(valid, samples, "good")]);
  const shared = leaks.map((finding) => {
    const {shared: many, of} = finding.measured, known = typeof many === "number" && typeof of === "number";
    return [el("span", {}, badge(finding.severity), finding.suppressed ? badge("known", "plain") : null, `${finding.rule} ${finding.name}`), finding.message,
      known ? `${many.toLocaleString("en")} of ${of.toLocaleString("en")} (${percent(many, of)})` : count(finding.failed, "sample"),
      known ? shareBar(many, of, "unfit") : ""];
  });
  return section("splits", "Splits and leaks", leaks.length ? "What two splits share makes an evaluation too good." : null,
    rows.length ? table("Splits", ["Split", "Samples", "Fit", "Share", ""], rows, [null, "number", "number", "number", "chart-cell"]) : null,
    run.left_out.splits ? el("p", {class: "soft"}, `${count(run.left_out.splits, "more split")} did not fit into this page.`) : null,
    overlapsOf(run.overlaps),
    shared.length ? table("What is there twice", ["Rule", "What", "Samples", ""], shared, [null, "wide", "number", "chart-cell"])
      : el("p", {class: "card"}, passed.length ? `No leak was found by ${passed.join(", ")}.` : "Nothing is known of leaks."),
    others.length ? el("p", {class: "soft"}, others.map((rule) => `${rule.code} ${rule.name}: ${rule.why || rule.status.replace("_", " ")}`).join(" · ")) : null);
}

const SHARED = {samples: ["Samples", "content"], groups: ["Groups", "splits: {key: ...}"]};

// Of every two splits how many of the one (row) stand in the other (column), too; then where.
function overlapsOf(overlaps) {
  if (!overlaps) return null;
  const {splits} = overlaps;
  return Object.entries(SHARED).filter(([what]) => overlaps[what]).map(([what, [title, measure]]) => {
    const {of, shared, pairs} = overlaps[what], known = (n) => of[n].toLocaleString("en");
    if (!shared.flat().some(Boolean)) return el("p", {class: "soft"}, `No two splits share ${what}, by ${measure} (${splits.map((name, n) => `${name}: ${known(n)}`).join(", ")}).`);
    const cell = (many, n, m) => (n === m ? "–" : many ? el("strong", {class: "of-error"}, `${many.toLocaleString("en")} (${percent(many, of[n])})`) : "0");
    const named = what === "groups" ? ["Group"] : [];
    return [el("h3", {}, `${title} in two splits`, el("span", {class: "soft small"}, ` by ${measure}`)),
      table(`${title} in two splits`, ["Of", title, ...splits.map((name) => `also in ${name}`)],
        splits.map((name, n) => [name, known(n), ...shared[n].map((many, m) => cell(many, n, m))]), [null, ...splits.map(() => "number"), "number"]),
      pairs.length ? table(`${title} in two splits: where`, [...named, "Split", "Sample", "Split", "Sample"],
        pairs.map(({name, splits: sides, keys}) => [...named.map(() => name), ...sides.flatMap((n, side) => [splits[n], copyable(keys[side])])]), [...named.map(() => "wide"), null, "wide", null, "wide"]) : null];
  });
}

function shareBar(part, whole, kind) {
  return svg("svg", {viewBox: "0 0 150 20", width: 150, height: 20, "aria-hidden": "true"},
    svg("rect", {class: "track", x: 0, y: 6, width: 150, height: 9, rx: 2}),
    svg("rect", {class: kind, x: 0, y: 6, width: whole ? (150 * part) / whole : 0, height: 9, rx: 2}));
}

function driftOf(run) {
  const rules = run.rules.filter((rule) => DRIFT.includes(rule.code) && !["not_applicable", "off"].includes(rule.status));
  if (!rules.length) return null;
  const found = [...run.findings, ...run.suppressed].filter((finding) => DRIFT.includes(finding.rule));
  const numbers = (said) => Object.entries(said).filter(([, value]) => typeof value === "number").map(([name, value]) => `${name} ${number(value)}`).join(" · ");
  const said = run.run.reference, gone = said && !run.reference;
  return section("drift", "Against the reference", "What is distributed otherwise than in the run named by --reference" + (said ? `: run ${said.run} in ${said.folder}.` : "."),
    gone ? el("p", {class: "soft"}, "That run is gone or cannot be read, so its histograms are not drawn.") : null,
    table("Rules of drift", ["Rule", "Verdict", "What it saw"], rules.map((rule) => [`${rule.code} ${rule.name}`, badge(rule.status, rule.status === "skip" ? "plain" : rule.status), rule.why || ""]), [null, null, "wide"]),
    found.length ? table("What differs", ["Field", "What", "Numbers"], found.map((one) => [whereOf(one).join(" · ") || "dataset", one.message, numbers(one.measured)]), [null, "wide", "wide"])
      : rules.every((rule) => rule.status === "pass") ? el("p", {class: "card"}, "Nothing differs by more than is allowed.") : null,
    driftsOf(run.drifts), driftedOf(found, run.fields));
}

// What differs most of each field, where the page has that measure, with the reference behind it.
function driftedOf(found, fields) {
  const drawn = found.flatMap((one) => {
    const field = fields.find(({name}) => name === one.fields[0]), known = field ? field.measures.filter((measure) => measure.then) : [];
    const stat = String(one.measured.measure || "").split(" ")[0];
    const measure = known.find((each) => each.stat === (stat === "length" ? "dims" : stat));
    return measure ? [[field.name, measure, measure.groups.includes(one.split) ? one.split : ""]] : [];
  }).slice(0, MOST_DRIFTED);
  return drawn.length ? el("div", {class: "card"}, el("div", {class: "plots"}, drawn.map(([name, measure, split]) => histogram(measure, split, split ? `${name} of ${split}` : name)))) : null;
}

// ------------------------------------------------------------------------------------------------ fields

function fieldsOf(run) {
  if (!run.fields.length) return null;
  const names = [...new Set(run.fields.flatMap((field) => field.measures.flatMap((measure) => measure.groups)))].filter(Boolean);
  const body = el("tbody"), open = new Set(), all = names.length > 1 ? ", all splits" : "";
  let split = "";
  const draw = () => body.replaceChildren(...run.fields.flatMap((field, n) => fieldRows(field, n, run, split, open)));
  draw();
  const select = choice("Split", [["", "all"], ...names.map((name) => [name, name])], (value) => { split = value; draw(); });
  const kinds = ["", "", "", "number", "number", "chart-cell"];
  const left = run.all_fields - run.fields.length;
  return section("fields", "Fields", "Counted over all samples, not over a part" +
    (run.of_samples.total > 100000 ? "; percentiles are of 100,000 of them. " : ". ") + "Open a field for all of its measures; drag over one of them, or move its two ends, to choose samples for the table below.",
    el("div", {class: "controls"}, names.length > 1 ? select.label : null,
      el("ul", {class: "legend"}, [["of-bar", "fit"], ["of-error", "not fit"], ["of-band", "allowed by the schema"], ...(run.reference ? [["of-then", "the reference, as if it had as many samples"]] : [])].map(([colour, word]) => el("li", {class: colour}, el("span", {}, word))))),
    el("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": "Fields"}, el("table", {}, el("caption", {class: "hidden"}, "Fields"),
      el("thead", {}, el("tr", {}, ["Field", "Role and shape", "Measure", `Missing${all}`, `1 % · median · 99 %${all}`, "Distribution"].map((head, n) => el("th", {scope: "col", class: kinds[n]}, head)))), body)),
    left > 0 ? el("p", {class: "soft"}, `${count(left, "more field")} did not fit into this page.`) : null);
}

function fieldRows(field, n, run, split, open) {
  const best = field.measures.find((measure) => measure.edges.length);
  const checked = run.dataset.samples.checked, missing = field.present === null ? null : Math.max(0, checked - field.present);
  const more = run.plots.filter((plot) => plot.field === field.name);
  const plots = el("tr", {class: "inside", id: `field-${n}`, hidden: !open.has(n)}, el("td", {colspan: 6}));
  const unfold = () => {
    if (!plots.hidden && !plots.firstChild.firstChild) plots.firstChild.append(measuresOf(field, split, more, run));
  };
  const toggle = el("button", {type: "button", class: "link", "aria-expanded": String(open.has(n)), "aria-controls": `field-${n}`, onclick: () => {
    plots.hidden = !plots.hidden;
    toggle.setAttribute("aria-expanded", String(!plots.hidden));
    if (plots.hidden) open.delete(n); else open.add(n);
    unfold();
  }}, field.name || "the sample as a whole");
  unfold();
  const declared = [field.role || (field.name && !field.declared ? "not in the schema" : ""), [field.dtype, field.shape].filter(Boolean).join(" "), field.unit].filter(Boolean).join(" · ");
  const row = el("tr", {}, el("th", {scope: "row"}, field.measures.length || more.length ? toggle : field.name), el("td", {}, declared),
    el("td", {}, best ? best.label + (best.unit ? ` (${best.unit})` : "") : ""),
    el("td", {class: "number"}, missing === null ? "" : missing === 0 ? "0" : `${missing.toLocaleString("en")} (${percent(missing, checked)})`),
    el("td", {class: "number"}, best ? best.p.map(number).join(" · ") : ""), el("td", {class: "chart-cell"}, best ? sparkline(best, split) : ""));
  return [row, plots];
}

function measuresOf(field, split, plots, run) {
  const plain = field.measures.filter((measure) => !measure.edges.length), isSame = ({low, high}) => low === high;
  const said = ({label, low, high, unit, nonfinite}) => `${label} ${low === high ? "" : `${number(low)} to `}${withUnit(high, unit)}` +
    (nonfinite ? ` (${count(nonfinite, "sample")} with NaN or infinity instead)` : "");
  const line = (title, some) => (some.length ? el("p", {class: "small soft"}, title, some.map(said).join(" · ")) : null);
  return el("div", {}, el("div", {class: "plots"}, field.measures.filter((measure) => measure.edges.length).map((measure) => brushable(field, measure, split, run))),
    plots.length ? el("div", {class: "plots"}, plots.map((plot) => plotOf(plot, split))) : null,
    run.previews ? (run.previews.overlays || []).filter((one) => one.field === field.name).map(overlayOf) : null,
    line("The same in all samples: ", plain.filter(isSame)), line("Too large or too close together to be drawn: ", plain.filter((measure) => !isSame(measure))));
}

// ------------------------------------------------------------------------------------ rules and provenance

const VERDICTS = [["crash", "Crashed"], ["fail", "Failed"], ["skip", "Had nothing that could be looked at"], ["pass", "Passed"],
  ["not_applicable", "Do not apply to these data"], ["off", "Turned off"]];

function rulesOf(run) {
  const groups = VERDICTS.map(([status, title]) => [status, title, run.rules.filter((rule) => rule.status === status)]).filter(([, , rules]) => rules.length);
  const skipped = (rule) => Object.entries(rule.skipped || {}).filter(([, many]) => many).map(([code, many]) => `${many.toLocaleString("en")} fail ${code}`).join(", ");
  const why = (rule) => [rule.why, ...(rule.unseen || []), skipped(rule) && `not judged on: ${skipped(rule)}`].filter(Boolean).join("; ");
  return section("rules", "What was looked at", groups.map(([, title, rules]) => `${rules.length} ${title.toLowerCase()}`).join(" · "),
    run.unchecked.length ? el("div", {class: "card"}, el("h3", {}, "Not looked at"), el("ul", {}, run.unchecked.map((text) => el("li", {}, `– ${text}`))),
      run.left_out.unchecked ? el("p", {class: "soft"}, `and ${run.left_out.unchecked.toLocaleString("en")} more`) : null) : el("p", {class: "card"}, "Nothing was left out."),
    run.crashes.length ? el("div", {class: "card"}, el("h3", {}, "Crashed"), run.crashes.map((crash) =>
      el("details", {}, el("summary", {}, `${crash.rule || "reader"} on ${crash.at}`), el("pre", {tabindex: "0"}, crash.traceback))),
      run.left_out.crashes ? el("p", {class: "soft"}, `and ${run.left_out.crashes.toLocaleString("en")} more`) : null) : null,
    groups.map(([status, title, rules]) => el("details", {open: status === "crash"}, el("summary", {}, `${title} (${rules.length})`),
      table(title, ["Rule", "Severity", "Judged", "Failed", "Why, and what it saw"], rules.map((rule) => [`${rule.code} ${rule.name}`, rule.severity,
        rule.checked === undefined ? "" : rule.checked.toLocaleString("en"), rule.failed === undefined ? "" : rule.failed.toLocaleString("en"), why(rule)]),
      [null, null, "number", "number", "wide"]))));
}

function provenanceOf(run) {
  const times = Object.entries(run.run.rule_seconds || {}).sort((a, b) => b[1] - a[1]);
  return section("provenance", "How this was made", null,
    el("div", {class: "card"}, facts([
      ["Command", run.run.command ? el("div", {class: "keys"}, copyable(run.run.command)) : null], ["Version", `datacheck ${run.run.version}`], ["Run", run.run.id],
      ["Judged again", run.run.rescored ? `the rows of run ${run.run.rescored}` : null], ["Depth", run.run.level], ["Fails on", run.run.fail_on],
      ["Kept", run.run.kept_files ? `${count(run.run.kept_files, "file")} unchanged, not opened` : null],
      ["Data", el("code", {}, run.dataset.digest)], ["Schema", el("span", {}, `${run.schema.name} `, el("code", {}, run.schema.digest))],
    ], "pairs")),
    times.length ? el("details", {}, el("summary", {}, `Time of the rules (${times.length} of a millisecond and more)`),
      table("Time of the rules", ["Rule", "Seconds"], times.map(([code, seconds]) => [code, seconds.toFixed(3)]), [null, "number"])) : null,
    el("details", {}, el("summary", {}, "Schema"), el("pre", {tabindex: "0"}, run.schema_text)));
}
