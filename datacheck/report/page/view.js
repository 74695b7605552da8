"use strict";
// The page of one sample: what it is, what was found, all of its pictures.

function startView() {
  const said = JSON.parse(document.getElementById("run").textContent);
  document.title = seen(`${said.key} · datacheck`);
  document.getElementById("verdict").replaceChildren(
    el("div", {class: "verdict"}, el("h1", {}, said.key)),
    facts([["Data", said.root], ["File", said.file], ["Split", said.split], ["Schema", said.schema], ["Run", said.run]], "facts"));
  const fields = said.findings.flatMap((finding) => finding.fields), parts = sampleParts(said.sample, fields);
  const found = said.findings.map((finding) => el("article", {class: `card finding ${finding.severity}`, "data-rule": finding.rule},
    el("h3", {}, el("span", {class: `badge ${finding.severity}`}, finding.severity), `${finding.rule} ${finding.name}`, finding.fields.length ? el("span", {class: "soft"}, ` · ${finding.fields.join(", ")}`) : null),
    el("p", {class: "said"}, finding.message), finding.fix ? facts([["Fix", finding.fix]], "pairs") : null));
  const words = found.length ? "Findings of the rules that this sample fails; the numbers are of all samples that fail them."
    : said.run ? "It fails no rule of the run." : "Not scanned: datacheck scan DATA says what is wrong.";
  document.getElementById("main").replaceChildren(
    el("section", {id: "findings", "aria-labelledby": "findings-title"}, el("h2", {id: "findings-title"}, "What was found"), el("p", {class: "soft"}, words), found),
    el("section", {id: "pictures", "aria-labelledby": "pictures-title"}, el("h2", {id: "pictures-title"}, "What is in it"),
      said.sample.fields.length ? el("div", {class: "card"}, parts.nodes) : el("p", {class: "card"}, `Nothing can be drawn: ${said.sample.why}`)));
}

startView();
