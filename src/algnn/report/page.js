"use strict";
// Tables sort by their headings, commands can be copied, and print shows what is folded away.
// Without this script the page is the same, in the order in which it was written.
for (const table of document.querySelectorAll("table")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "descending";
      const up = head.getAttribute("aria-sort") === "ascending";
      const number = head.classList.contains("number");
      // numbers start with the largest, names with the first
      const direction = down ? 1 : up ? -1 : number ? -1 : 1;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
      for (const body of table.tBodies) sort(body, column, direction, number);
    });
  });
}

function sort(body, column, direction, number) {
  const key = (row) => row.cells[column].dataset.key;
  const rows = [...body.rows].sort((a, b) => {
    const [one, other] = [key(a), key(b)];
    // an empty cell goes last, whichever way
    if (one === "" || other === "") return (one === "") - (other === "");
    return direction * (number ? one - other : one.localeCompare(other));
  });
  body.append(...rows);
}

for (const box of document.querySelectorAll(".command")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    const code = box.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      // a page opened from disk may not have the clipboard: the text is selected instead
      getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1600);
  });
  box.append(button);
}

addEventListener("beforeprint", () => {
  for (const folded of document.querySelectorAll("details")) folded.open = true;
});
