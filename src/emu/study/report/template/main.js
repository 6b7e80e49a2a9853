// Everything begins here. `emuReport` is for tests and for the curious in the browser's console.

startTheme();
startCurves();
window.emuReport = { data };
if (data.memories.runs.length) {
  window.emuReport.explorer = new Explorer();
} else {
  byId("explorer").hidden = true;
  byId("no-memory").hidden = false;
}
if (data.memories.left_out) {
  byId("memory-note").textContent = `${data.memories.left_out} more runs have a memory; they were left out to keep the page small.`;
}
