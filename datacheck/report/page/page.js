"use strict";
// Reads the run once and puts the page together.

function start() {
  const run = JSON.parse(document.getElementById("run").textContent);
  document.title = seen(`${run.verdict.status.toUpperCase()} ${run.dataset.name} · datacheck`);
  const samples = samplesOf(run);
  const sections = [findingsOf(run, samples.show), splitsOf(run), classesOf(run), fieldsOf(run), driftOf(run), samples.made, rulesOf(run), provenanceOf(run)].filter(Boolean);
  document.getElementById("verdict").replaceChildren(...verdictOf(run).flat());
  document.getElementById("main").replaceChildren(...sections);
  places(sections, {findings: run.findings.length, samples: run.of_samples.total, rules: run.rules.length, fields: run.all_fields});
}

start();
