// Runs once for the drop zone. Dropped or chosen files are sent inside the event, as base64: no upload, no path.
// Its content is drawn anew now and then, so listeners sit on the element that stays.
const part = (name) => element.querySelector(name);
const say = (text) => { part(".drop-note").textContent = text; };

const asBase64 = (file) => new Promise((resolve, reject) => {
  const reader = new FileReader();
  reader.onload = () => resolve({ name: file.name, data: String(reader.result).split(",", 2)[1] || "" });
  reader.onerror = () => reject(reader.error);
  reader.readAsDataURL(file);
});

const send = async (list) => {
  const files = Array.from(list);
  const most = part(".drop").dataset;
  const bytes = files.reduce((sum, file) => sum + file.size, 0);
  if (!files.length) return;
  if (files.length > Number(most.mostImages)) return say(`${files.length} images at once; ${most.mostImages} is the limit.`);
  if (bytes * 1.4 > Number(most.mostBytes)) return say(`${Math.ceil(bytes / 1048576)} MB at once is too much; drop fewer.`);
  say(files.length > 1 ? `Looking at ${files.length} images …` : "Looking at it …");
  try {
    trigger("upload", { files: await Promise.all(files.map(asBase64)) });
  } catch (error) {
    say("A file could not be read.");
  }
};

const over = (event, on) => {
  event.preventDefault();
  part(".drop").classList.toggle("over", on);
};

element.addEventListener("click", (event) => {
  if (event.target.closest(".drop") && event.target.type !== "file") part("input").click();
});
element.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" && event.key !== " ") return;
  event.preventDefault();
  part("input").click();
});
element.addEventListener("change", () => {
  send(part("input").files);
  part("input").value = "";
});
element.addEventListener("dragover", (event) => over(event, true));
element.addEventListener("dragleave", (event) => over(event, false));
element.addEventListener("drop", (event) => {
  over(event, false);
  send(event.dataTransfer.files);
});
