// A filter above each table of operators: words of a row, and only rows that are not ✓ throughout.
for (const table of document.querySelectorAll("table")) {
  if (table.querySelector("th")?.textContent.trim() !== "operator") continue;
  const rows = [...table.tBodies[0].rows].map((row) => ({
    row,
    text: row.textContent.toLowerCase(),
    right: [...row.cells].slice(1).every((cell) => !/cpu|exact|✗/.test(cell.textContent)),
  }));
  const bar = document.createElement("div");
  bar.className = "operator-filter";
  bar.innerHTML =
    '<input type="search" placeholder="fft, pool, torch-mlir, ..." aria-label="filter operators">' +
    '<label><input type="checkbox"> only what is not ✓ throughout</label><output></output>';
  const [words, only] = bar.querySelectorAll("input");
  const filter = () => {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const { row, text, right } of rows) {
      row.hidden = (only.checked && right) || !wanted.every((word) => text.includes(word));
      shown += !row.hidden;
    }
    bar.querySelector("output").textContent = `${shown} of ${rows.length}`;
  };
  bar.addEventListener("input", filter);
  (table.closest(".table-wrapper") ?? table).before(bar);
  filter();
}
