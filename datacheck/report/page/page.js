"use strict";
// Reads the run once and puts the page together.

function places(run, sections) {
  const numbers = {findings: run.findings.length, samples: run.of_samples.total, rules: run.rules.length, fields: run.all_fields};
  document.querySelector("#places ul").append(...sections.map((one) => {
    const many = numbers[one.id];
    return el("li", {}, el("a", {href: `#${one.id}`}, one.querySelector("h2").textContent, many === undefined ? null : el("span", {}, many.toLocaleString("en"))));
  }));
}

function start() {
  const run = JSON.parse(document.getElementById("run").textContent);
  document.title = seen(`${run.verdict.status.toUpperCase()} ${run.dataset.name} · datacheck`);
  const samples = samplesOf(run);
  const sections = [findingsOf(run, samples.show), splitsOf(run), fieldsOf(run), driftOf(run), samples.made, rulesOf(run), provenanceOf(run)].filter(Boolean);
  document.getElementById("verdict").replaceChildren(...verdictOf(run));
  document.getElementById("main").replaceChildren(...sections);
  places(run, sections);
}

start();
