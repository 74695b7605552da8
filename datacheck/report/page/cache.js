"use strict";
// The page of a cache: reads what is said of it once, and puts the sections together.

const ROWS = 50;
const CHECKED = {quick: "names and sizes of all files", full: "every byte", values: "every byte and every sample"};

const many = (value) => value.toLocaleString("en");

// A table of which fifty rows are shown at a time.
function paged(caption, heads, rows, kinds) {
  if (rows.length <= ROWS) return table(caption, heads, rows, kinds);
  const box = el("div"), said = el("p", {class: "soft small", role: "status"});
  let from = 0;
  const turn = (by) => {
    from += by;
    const stop = Math.min(rows.length, from + ROWS);
    box.replaceChildren(table(caption, heads, rows.slice(from, stop), kinds));
    said.textContent = `${many(from + 1)} to ${many(stop)} of ${many(rows.length)}`;
    previous.disabled = from === 0;
    next.disabled = stop === rows.length;
  };
  const previous = el("button", {type: "button", onclick: () => turn(-ROWS)}, "Previous");
  const next = el("button", {type: "button", onclick: () => turn(ROWS)}, "Next");
  turn(0);
  return el("div", {}, box, el("div", {class: "controls"}, previous, next, said));
}

function more(left, word) {
  return left > 0 ? el("p", {class: "soft"}, `${count(left, `more ${word}`)} did not fit into this page.`) : null;
}

// ------------------------------------------------------------------------------------------------ verdict

function cacheVerdict(said) {
  const {cache, checked, provenance} = said, wrong = checked.all_problems;
  const served = cache === null ? "" : cache.samples === 1 ? `the sample is ${cache.valid ? "" : "not "}served`
    : cache.valid === cache.samples ? `all ${count(cache.samples, "sample")} are served`
      : `${many(cache.valid)} of ${count(cache.samples, "sample")} ${cache.valid === 1 ? "is" : "are"} served`;
  const whole = checked.depth === "quick" ? "Finished, no file is missing or cut short" : "Finished, every byte is as it was written";
  const sentence = wrong ? `This cache is not what was written: ${count(wrong, "problem")}` : `${whole}; ${served}`;
  const parts = cache === null ? [] : [[cache.valid, "good", "of-ok", "valid"], [cache.made - cache.valid, "unfit", "of-error", "invalid"],
    [cache.samples - cache.made, "none", "of-none", "could not be made"]];
  return [
    el("div", {class: "verdict"}, el("span", {class: `word ${wrong ? "fail" : "pass"}`}, wrong ? "DAMAGED" : "OK"), el("h1", {}, sentence)),
    cache === null ? null : sharesOf(parts, cache.samples),
    facts([
      ["Cache", said.place], ...(cache === null ? [] : [
        ["Pipeline, schema, split", `${cache.pipeline}, ${cache.schema}, ${cache.split}`],
        ["Built", provenance.build.built ? provenance.build.built.replace("T", " ").replace("Z", " UTC") : "it does not say when"]]),
      ["Checked", `${CHECKED[checked.depth]}, ${checked.when}`],
      ...(cache === null ? [] : [
        ["Size", `${bytes(cache.bytes)} in ${count(cache.files, "file")}`],
        ["Compression", cache.compression === "none" ? "none: local reads are memory maps" : `${cache.compression}: ${bytes(cache.raw)} of values in ${bytes(cache.stored)}`],
        ["Shards", `${many(cache.shards)}, of up to ${count(cache.shard_samples, "sample")}`], ["Windows", cache.windows],
        ["Key", el("code", {}, cache.key)], ["Content root", el("code", {}, cache.content_root)]]),
    ], "facts"),
    checked.depth === "quick" && !wrong ? el("p", {class: "foot small"}, "The bytes of the shards were not read. To check them, too: ", copyable(`datacheck cache verify ${said.quoted}`)) : null,
  ].filter(Boolean).flat(Infinity);
}

function problemsOf({cache, checked, place, quoted}) {
  if (!checked.all_problems) return null;
  const rows = checked.problems.map(({file, what, whom}) => [file, what, whom]);
  return section("problems", "What is wrong", "Damaged samples are never served: reading one ends in an error.",
    paged("What is wrong", ["File", "Found", "Concerns"], rows, ["wide", "wide", "wide"]), more(checked.all_problems - rows.length, "problem"),
    cache === null ? el("p", {class: "card"}, "What the cache holds is not shown: it could not be read.") : null,
    el("div", {class: "card"}, el("h3", {}, "What to do"), el("p", {}, place.includes("://")
      ? "What lies in an object store cannot be repaired: delete the cache, and build it again (datacheck cache build)."
      : "Run datacheck cache repair with the words of the datacheck cache build that made it: it makes anew what is damaged and nothing else."),
      el("p", {}, "For all problems: ", copyable(`datacheck cache verify ${quoted}`))));
}

// ------------------------------------------------------------------------------------------------ contents

function cacheFields(said) {
  const {cache} = said, largest = Math.max(1, ...said.fields.map((field) => field.stored));
  const packed = cache.compression !== "none";
  const heads = ["Field", "Type", "Axes", "Rows", "Has it", "Raw", "Stored", ...(packed ? ["Raw : stored"] : []), ""];
  const kinds = [null, null, "axes", "number", "number", "number", "number", ...(packed ? ["number"] : []), "chart-cell"];
  const rows = said.fields.map((field) => [[field.name, el("div", {class: "small soft"}, field.about)], field.dtype, el("code", {}, field.shape), field.rows === null ? "" : field.rows.map(number).join(" · "),
    field.present === null ? "all" : `${many(field.present)} (${percent(field.present, cache.samples)})`, bytes(field.raw), bytes(field.stored),
    ...(packed ? [field.stored ? number(field.raw / field.stored) : ""] : []), shareBar(field.stored, largest, "fit")]);
  return section("fields", "Fields", `${bytes(cache.stored)} in shards of fields (${bytes(cache.raw)} of values), ${bytes(cache.bytes - cache.stored)} in keys, tables, digests and documents. ` +
    "An axis with a name instead of a number differs from sample to sample; rows are the fewest, the median and the most.", paged("Fields", heads, rows, kinds), more(said.all_fields - rows.length, "field"));
}

function stripOf(said) {
  const {strip, changed} = said, shards = said.cache.shards, reused = strip.reduce((sum, cell) => sum + cell[3], 0);
  const width = 1000 / strip.length;
  const label = `${count(shards, "shard")} from left to right` + (changed ? `; ${many(reused)} unchanged` : "");
  const cells = strip.map(([first, last, unfit, same], n) => {
    const share = same / (last - first + 1), at = {x: n * width, width: Math.max(width - (width > 6 ? 1 : 0), .5)};
    return [svg("rect", {class: "fit", ...at, y: 0, height: 26}), unfit ? svg("rect", {class: "unfit", ...at, y: 26 - Math.max(2, 26 * unfit), height: Math.max(2, 26 * unfit)}) : null,
      changed ? svg("rect", {class: "track", ...at, y: 30, height: 8}) : null, share ? svg("rect", {class: "good", ...at, y: 30, height: 8, opacity: share}) : null];
  });
  const words = [["of-bar", "samples that are served"], ["of-error", "share that is not"], ...(changed ? [["of-ok", `unchanged (below): ${many(reused)} of ${many(shards)}`]] : [])];
  return el("div", {class: "card"},
    el("div", {class: "chart"}, svg("svg", {viewBox: `0 0 1000 ${changed ? 38 : 26}`, preserveAspectRatio: "none", width: "100%", height: changed ? 38 : 26, role: "img", "aria-label": label}, cells)),
    el("ul", {class: "legend"}, words.map(([colour, word]) => el("li", {class: colour}, el("span", {}, word)))));
}

function shardsOf(said) {
  const {cache, changed} = said;
  if (!cache.shards) return null;
  const other = changed ? (changed.before ? "the cache before" : "the later cache") : "";
  const heads = ["Shard", "Samples", "Numbers", "Served", "Stored", ...(changed ? [`In ${other}`] : [])];
  const rows = said.shards.map(([g, first, stop, valid, size, same]) => [many(g), many(stop - first), `${many(first)} to ${many(stop - 1)}`, many(valid), bytes(size),
    ...(changed ? [badge(same ? "unchanged" : "new", same ? "pass" : "plain")] : [])]);
  return section("shards", "Shards", changed ? `Unchanged: each field's file has the same bytes in ${other}, so a build links it and does not make it.`
    : "There is no other cache of this pipeline and split beside it: all of them were built.", stripOf(said),
    paged("Shards", heads, rows, ["number", "number", "number", "number", "number", null]), more(cache.shards - rows.length, "shard"));
}

function unservedOf({unserved}) {
  const {codes, all_codes: all, windows, why, seed, epoch} = unserved;
  if (!all) return section("unserved", "Samples that are not served", null, el("p", {class: "card"}, "There is none."));
  const instead = (other) => (other === null ? "nothing" : [copyable(other[1]), el("div", {class: "small soft"}, `number ${many(other[0])}${other[2] === null ? "" : `, from step ${many(other[2])}`}`)]);
  return section("unserved", "Samples that are not served",
    `By the code of the finding. A training is given another sample in the place of each (on_invalid="resample"), or leaves them out ("skip"). Which one follows from seed, epoch and number alone; here seed ${seed}, epoch ${epoch}` +
    `${windows ? ", of each episode its first window" : ""}.`,
    why ? el("p", {class: "card"}, `Nothing can be served: ${why}`) : null,
    codes.map(({code, name, rule, samples, rows}, n) => el("details", {open: n === 0 || codes.length <= 3, "data-code": code}, el("summary", {}, `${[code, name].filter(Boolean).join(" ") || "no code"}: ${count(samples, "sample")}`),
      table(`Not served: ${code}`, ["Sample", "Number", "", "Codes", "Served in its place"], rows.map(([place, key, made, found, reason, other]) =>
        [[copyable(key), reason ? el("div", {class: "small soft"}, reason) : null], many(place), badge(made ? "invalid" : "not made", made ? "error" : "plain"), found, instead(other)]),
      ["wide", "number", null, null, "wide"]),
      samples > rows.length ? el("p", {class: "soft"}, `and ${many(samples - rows.length)} more; findings.json of the cache has all of them`) : null,
      rule ? el("p", {class: "foot small"}, copyable(`datacheck explain ${code}`)) : null)), more(all - codes.length, "code"));
}

function previewsOf(said) {
  const {previews} = said;
  if (!previews) return null;
  const rows = [
    {id: "valid", rule: "Valid", name: "samples", message: "spread over all that are served", title: "Valid samples", fields: []},
    {id: "instead", rule: "Served", name: "in the place of others", message: "those of the table of what is not served", title: "Served in the place of others", fields: []},
  ].map((row) => [row.title, picturesOf(row, said)]).filter(([, made]) => made);
  const why = previews.samples.map((one) => one.why).find(Boolean);
  return section("previews", "Pictures", "What a training is given, so after the transforms of the build.",
    rows.length ? rows.map(([title, made]) => [el("h3", {}, title), made]) : el("p", {class: "card"}, `Nothing could be drawn${why ? `: ${why}` : ""}.`), undrawnOf(said));
}

// --------------------------------------------------------------------------------------- changes, provenance

function changedOf(said) {
  const {changed} = said;
  if (changed === null) return null;
  const title = changed.before ? "Since the last build" : "In the later build";
  const about = `Held against the ${changed.before ? "cache built before" : "newest cache, as none was built before"}: ${changed.path}`;
  if (changed.failed) return section("changes", title, about, el("p", {class: "card"}, `They could not be compared: ${changed.failed}`));
  const [one, two] = changed.pair, names = ["", "Before", "Then"];
  const numbers = [["Key", one.key, two.key], ["Built", one.built, two.built], ["Samples", many(one.samples), many(two.samples)], ["Valid", many(one.valid), many(two.valid)],
    ["Size", bytes(one.bytes), bytes(two.bytes)], ["Content root", el("code", {}, one.content_root), el("code", {}, two.content_root)]];
  const part = (caption, group, heads) => (group.all ? [el("h3", {}, `${caption} (${many(group.all)})`), table(caption, heads, group.rows, heads.map(() => "wide")),
    group.all > group.rows.length ? el("p", {class: "soft"}, `and ${many(group.all - group.rows.length)} more`) : null] : null);
  const listed = [
    changed.all_parts ? [el("h3", {}, `Inputs of the key (${many(changed.all_parts)})`), paged("Inputs of the key", ["Part", ...names.slice(1)], changed.parts, ["wide", "wide", "wide"]), more(changed.all_parts - changed.parts.length, "part")] : null,
    changed.all_fields ? [el("h3", {}, `Fields stored otherwise (${many(changed.all_fields)})`), paged("Fields stored otherwise", ["Field", ...names.slice(1)], changed.fields), more(changed.all_fields - changed.fields.length, "field")] : null,
    part("Samples that came", changed.added, ["Sample"]), part("Samples that went", changed.removed, ["Sample"]),
    part("Samples with other values", changed.changed, ["Sample", "How (first: before, second: then)"]),
    changed.unread ? el("p", {class: "card"}, `${count(changed.unread, "more sample")} ${changed.alike ? "with other values" : "that both have"} ${changed.unread === 1 ? "was" : "were"} not looked at: this page compares ${bytes(changed.read)} of values, and 250,000 that changed. More: datacheck cache diff.`) : null,
    part("Samples judged otherwise", changed.verdicts, ["Sample", ...names.slice(1)]),
  ].filter(Boolean);
  const same = one.content_root === two.content_root;
  return section("changes", title, about, table("Two builds", names, numbers), listed.length ? listed : el("p", {class: "card"}, "Nothing differs."),
    same && listed.length ? el("p", {class: "card"}, "The content root is the same: keys, fields and values are those of the other cache.") : null);
}

function madeOf({cache, provenance}) {
  const {build, steps} = provenance;
  return section("provenance", "How this was made", null,
    el("div", {class: "card"}, facts([
      ["Key", el("code", {}, cache.key)], ["Content root", el("code", {}, cache.content_root)], ["Manifest", el("code", {}, cache.digest)], ["Recipe", el("code", {}, provenance.recipe)],
      ["Sources", [`${count(provenance.files, "file")}, ${bytes(provenance.nbytes)} `, el("code", {}, provenance.sources)]],
      ["Format", `${cache.format}, values ${provenance.values}, compression ${provenance.codec}`],
      ["Built", build.built], ["Where", [build.host, build.machine].filter(Boolean).join(", ")],
      ["Versions", [["datacheck", build.datacheck], ["Python", build.python], ["NumPy", build.numpy]].filter(([, version]) => version).map((pair) => pair.join(" ")).join(", ")],
      ["Numerics", build.numerics ? [el("code", {}, build.numerics), " (what the machine makes of numbers)"] : null],
    ], "pairs")),
    Object.keys(build).length ? null : el("p", {class: "soft"}, "build.json is absent: when and where it was built is not known."),
    steps.length ? paged("Transforms", ["Transform", "Code", "Options"], steps.map(({name, code, options}) => [name, el("code", {}, code), el("code", {}, options)]), [null, "wide", "wide"])
      : el("p", {class: "card"}, "No transform."), more(provenance.all_steps - steps.length, "transform"),
    el("details", {}, el("summary", {}, "Schema"), el("pre", {tabindex: "0"}, provenance.schema)));
}

function startCache() {
  const said = JSON.parse(document.getElementById("run").textContent), {cache, checked} = said;
  document.title = seen(`${checked.all_problems ? "DAMAGED" : "OK"} ${cache ? `${cache.pipeline} ${cache.split} ${cache.key}` : said.place} · datacheck`);
  const contents = cache === null ? [] : [unservedOf(said), cacheFields(said), previewsOf(said), shardsOf(said), changedOf(said), madeOf(said)];
  const sections = [problemsOf(said), ...contents].filter(Boolean);
  document.getElementById("verdict").replaceChildren(...cacheVerdict(said));
  document.getElementById("main").replaceChildren(...sections);
  places(sections, cache === null ? {problems: checked.all_problems} : {problems: checked.all_problems, fields: said.all_fields, shards: cache.shards, unserved: cache.samples - cache.valid});
}

startCache();
