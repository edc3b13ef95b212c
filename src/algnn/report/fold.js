// The folded rest: tables sort by their headings, commands can be copied, links and print unfold.
for (const table of document.querySelectorAll(".table table")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = make("button", { type: "button" }, ...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const sorted = head.getAttribute("aria-sort");
      const number = head.classList.contains("number");
      // numbers start with the largest, names with the first
      const direction = sorted === "descending" ? 1 : sorted === "ascending" ? -1 : number ? -1 : 1;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
      for (const body of table.tBodies) sort(body, column, direction, number);
    });
  });
}

function sort(body, column, direction, number) {
  const key = (row) => {
    const text = row.cells[column].dataset.key ?? row.cells[column].textContent;
    return text === "" ? null : number ? Number(text) : text;
  };
  body.append(...[...body.rows].sort((a, b) => compare(key(a), key(b), direction)));
}

for (const box of document.querySelectorAll(".command")) {
  const button = make("button", { type: "button" }, "Copy");
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

function unfold() {
  // a link to something folded away opens all that it lies in
  const target = location.hash.includes("=") ? null : document.getElementById(location.hash.slice(1));
  for (let fold = target?.closest("details"); fold; fold = fold.parentElement?.closest("details")) fold.open = true;
  target?.scrollIntoView();
}
addEventListener("hashchange", unfold);
unfold();
addEventListener("beforeprint", () => {
  for (const folded of document.querySelectorAll("details")) folded.open = true;
});
