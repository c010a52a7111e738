// The images that a visitor gave, and their answers: shared by the page of `gradmix serve` and the exported one.
//
// `ask(files)` answers a batch: [{label, known, nearest, p_value, score} | {error}, …], in the order of the files.
// Images are kept in the browser (IndexedDB), so that a reload loses nothing; the number and bytes are bounded.

const MOST_KEPT = 500;
const MOST_KEPT_BYTES = 200 * 1024 * 1024;
const MOST_SHOWN = 5000;

export const $ = (selector) => document.querySelector(selector);

/** Make an element; text is always text, never HTML. */
export const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") element.addEventListener("click", value);
    else if (value !== false && value !== undefined && value !== null) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
};

export const count = (n, one, more) => `${n.toLocaleString("en")} ${n === 1 ? one : more}`;

export const say = (text, bad = false) => {
  const line = $("#told");
  line.textContent = text;
  line.className = text ? `message${bad ? " bad" : ""}` : "";
};

/** "1 in 40", for a share of the known images. */
export const oneIn = (p) => (p >= 0.5 ? "every second one" : `1 in ${Math.round(1 / p).toLocaleString("en")}`);

/** How unusual an image is, in words. */
export const describe = (answer) => {
  if (answer.p_value === undefined || answer.p_value === null) return "";
  if (answer.p_value >= 0.1) return "looks usual";
  return `unusual: ${oneIn(answer.p_value)}`;
};

export class Gallery {
  constructor({ ask, most, onChoose = () => {}, onChange = () => {} }) {
    Object.assign(this, { ask, most, onChoose, onChange });
    this.items = [];
    this.rate = null; // what the visitor chose; null: as the model decides
    this.chosen = null;
    this.work = Promise.resolve();
    this.#connect();
  }

  /** Whether an answered image is known, at the rate that the visitor chose. */
  isKnown(item) {
    const { known, p_value: p } = item.answer;
    return this.rate === null || p === undefined || p === null ? known : p > this.rate;
  }

  label(item) {
    return this.isKnown(item) ? item.answer.nearest : "unknown";
  }

  answered() {
    return this.items.filter((item) => item.answer && !item.answer.error);
  }

  unknown() {
    return this.answered().filter((item) => !this.isKnown(item));
  }

  /** Take files in, after what is under way; answer them batch by batch. */
  add(files) {
    const images = Array.from(files).filter((file) => file.size);
    if (!images.length) return this.work;
    const room = MOST_SHOWN - this.items.length;
    if (images.length > room) say(`Only ${count(Math.max(room, 0), "image", "images")} more fit on the page; clear it first.`, true);
    const items = images.slice(0, Math.max(room, 0)).map((file) => ({ id: crypto.randomUUID?.() ?? String(Math.random()), name: file.name || "picture.png", file, answer: null }));
    this.items.push(...items);
    this.draw();
    return this.#queue(items);
  }

  /** Ask again about all images, as after the model has changed. */
  askAgain() {
    return this.#queue(this.items);
  }

  #queue(items) {
    this.work = this.work.then(() => this.#answer(items)).catch((error) => say(error.message, true));
    return this.work;
  }

  async #answer(items) {
    const bar = $("#progress");
    const left = items.filter((item) => this.items.includes(item));
    let done = 0;
    bar.hidden = left.length < 2;
    bar.max = left.length;
    try {
      while (left.length) {
        const batch = [left.shift()];
        let bytes = batch[0].file.size;
        while (left.length && batch.length < this.most.images && bytes + left[0].file.size < this.most.bytes) {
          bytes += left[0].file.size;
          batch.push(left.shift());
        }
        bar.value = done;
        $("#counts").textContent = `Looking at image ${done + 1} of ${bar.max} …`;
        let answers;
        try {
          answers = await this.ask(batch.map((item) => item.file));
        } catch (error) {
          if (!error.final) throw error;
          answers = batch.map(() => ({ error: error.message })); // none of them can be read
        }
        batch.forEach((item, i) => { item.answer = answers[i]; });
        done += batch.length;
        await this.#store(batch);
        this.draw();
      }
    } finally {
      bar.hidden = true;
      this.draw();
      this.onChange();
    }
  }

  draw() {
    const answered = this.answered();
    const known = answered.filter((item) => this.isKnown(item)).length;
    $("#counts").textContent = answered.length ? `${known} known, ${answered.length - known} unknown` : "";
    $("#tools").hidden = !this.items.length;
    const only = $("#only-unknown").checked;
    const shown = this.items.filter((item) => !only || !item.answer || item.answer.error || !this.isKnown(item));
    $("#cards").replaceChildren(...shown.map((item) => this.#card(item)));
  }

  #card(item) {
    item.url ??= URL.createObjectURL(item.file);
    if (item.answer?.error) return make("div", { class: "card bad" }, item.answer.error);
    if (!item.answer) return make("div", { class: "card waiting" }, make("img", { src: item.url, alt: item.name }), make("div", { class: "text" }, "…"));
    const known = this.isKnown(item);
    const text = make("div", { class: "text" },
      make("div", { class: "name" }, this.label(item)),
      make("div", { class: "small" }, known ? item.name : `most like ${item.answer.nearest}`),
      make("div", { class: "small" }, describe(item.answer)));
    return make("button", {
      type: "button", class: `card ${known ? "known" : "unknown"}`, "aria-pressed": String(item === this.chosen), title: item.name,
      onclick: () => { this.chosen = item; this.draw(); this.onChoose(item); },
    }, make("img", { src: item.url, alt: item.name, loading: "lazy" }), text);
  }

  /** The answers as a table, for a spreadsheet. */
  csv() {
    const cell = (value) => `"${String(value ?? "").replaceAll('"', '""')}"`;
    const rows = this.items.filter((item) => item.answer).map((item) => item.answer.error
      ? [item.name, "", "", "", "", item.answer.error]
      : [item.name, this.label(item), item.answer.nearest, item.answer.p_value, item.answer.score, ""]);
    return [["file", "label", "nearest", "p_value", "score", "error"], ...rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
  }

  async clear() {
    this.items.forEach((item) => item.url && URL.revokeObjectURL(item.url));
    this.items = [];
    this.chosen = null;
    this.draw();
    this.onChange();
    await withStore("readwrite", (store) => store.clear());
  }

  /** Bring back what was there before a reload; ask again if the model was in another `state` then. */
  async restore(state) {
    const kept = (await withStore("readonly", (store) => store.getAll())) ?? [];
    kept.sort((a, b) => a.place - b.place);
    this.items = [...kept.map(({ id, name, file, answer }) => ({ id, name, file, answer })), ...this.items];
    this.draw();
    const same = readSetting("state") === state && this.items.every((item) => item.answer);
    writeSetting("state", state);
    if (kept.length) await (same ? this.onChange() : this.askAgain());
  }

  /** Remember in which state the model was that gave the answers. */
  note(state) {
    writeSetting("state", state);
  }

  async #store(batch) {
    const kept = this.items.slice(0, MOST_KEPT);
    let bytes = 0;
    const fitting = new Set(kept.filter((item) => (bytes += item.file.size) <= MOST_KEPT_BYTES));
    const rows = batch.filter((item) => fitting.has(item)).map((item) => ({ id: item.id, name: item.name, file: item.file, answer: item.answer, place: this.items.indexOf(item) }));
    await withStore("readwrite", (store) => rows.forEach((row) => store.put(row)));
  }

  #connect() {
    const zone = $("#drop");
    const input = $("#drop input");
    zone.addEventListener("click", (event) => { if (event.target !== input) input.click(); });
    zone.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); input.click(); } });
    input.addEventListener("change", () => { this.add(input.files); input.value = ""; });
    document.addEventListener("dragover", (event) => { event.preventDefault(); zone.classList.add("over"); });
    document.addEventListener("dragleave", () => zone.classList.remove("over"));
    document.addEventListener("drop", (event) => { event.preventDefault(); zone.classList.remove("over"); this.add(event.dataTransfer.files); });
    document.addEventListener("paste", (event) => {
      const files = Array.from(event.clipboardData?.files ?? []).filter((file) => file.type.startsWith("image/"));
      if (files.length) this.add(files);
    });
    $("#only-unknown").addEventListener("change", () => this.draw());
    $("#clear").addEventListener("click", () => this.clear());
    $("#save-csv").addEventListener("click", () => {
      const url = URL.createObjectURL(new Blob([this.csv()], { type: "text/csv" }));
      make("a", { href: url, download: "answers.csv" }).click();
      setTimeout(() => URL.revokeObjectURL(url), 1000);
    });
    $("#camera").addEventListener("click", () => this.#openCamera());
    if (!navigator.mediaDevices?.getUserMedia) $("#camera").hidden = true;
    const hint = $("#hint");
    hint.hidden = Boolean(readSetting("hint-read"));
    $("#hint button").addEventListener("click", () => { hint.hidden = true; writeSetting("hint-read", "1"); });
    this.#connectRate();
  }

  #connectRate() {
    const slider = $("#rate input");
    const rates = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5];
    slider.max = rates.length - 1;
    this.showRate = (own) => {
      const rate = this.rate ?? own;
      const nearest = rates.reduce((best, r, i) => (Math.abs(Math.log(r / rate)) < Math.abs(Math.log(rates[best] / rate)) ? i : best), 0);
      slider.value = nearest;
      $("#rate output").textContent = `At most ${oneIn(rate)} known images ${rate >= 0.5 ? "is" : "are"} to be called unknown` + (this.rate === null ? "." : " (your choice).");
    };
    slider.addEventListener("input", () => {
      this.rate = rates[Number(slider.value)];
      this.showRate(this.rate);
      this.draw();
    });
    slider.addEventListener("change", () => this.onChange());
  }

  async #openCamera() {
    const dialog = $("#camera-dialog");
    const video = dialog.querySelector("video");
    let stream;
    try {
      stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
    } catch (error) {
      say("The camera cannot be used: the browser did not allow it, or there is none.", true);
      return;
    }
    video.srcObject = stream;
    dialog.showModal();
    dialog.querySelector(".shoot").onclick = () => {
      const canvas = make("canvas", { width: video.videoWidth, height: video.videoHeight });
      canvas.getContext("2d").drawImage(video, 0, 0);
      canvas.toBlob((blob) => { if (blob) this.add([new File([blob], `camera ${new Date().toLocaleTimeString("en")}.png`, { type: "image/png" })]); }, "image/png");
      dialog.close();
    };
    dialog.onclose = () => stream.getTracks().forEach((track) => track.stop());
  }
}

// A browser that keeps nothing (a private window, a full disk) still shows everything.
const readSetting = (name) => { try { return localStorage.getItem(`gradmix-${name}`); } catch { return null; } };
const writeSetting = (name, value) => { try { localStorage.setItem(`gradmix-${name}`, value); } catch { /* shown again */ } };

const withStore = (mode, work) => new Promise((resolve) => {
  let opened;
  try {
    opened = indexedDB.open("gradmix", 1);
  } catch {
    resolve(null);
    return;
  }
  opened.onupgradeneeded = () => opened.result.createObjectStore("images", { keyPath: "id" });
  opened.onerror = () => resolve(null);
  opened.onsuccess = () => {
    const change = opened.result.transaction("images", mode);
    const request = work(change.objectStore("images"));
    change.oncomplete = () => { opened.result.close(); resolve(request?.result ?? null); };
    change.onerror = change.onabort = () => { opened.result.close(); resolve(null); };
  };
});
