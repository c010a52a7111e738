// The page of `gradmix serve`: answers, why, corrections, groups of unknown images to teach, classes, undo.
import { Gallery, $, make, count, say } from "./gallery.js";

const settings = document.body.dataset;
const most = { images: Number(settings.mostImages), bytes: Number(settings.mostBytes) * 0.9 };
let classes = [];
let state = "";
let ownRate = 0.05;
let groups = []; // arrays of items
let group = null; // the index of the chosen one
let left = new Set(); // items of it that were clicked away
let asked = 0; // explanations, of which only the last is shown

/** Send a request; return its JSON, or throw the reason in one line. */
const request = async (path, options = {}) => {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("The server does not answer; is it still running?");
  }
  const content = await response.json().catch(() => ({ error: `the server answered ${response.status}` }));
  if (response.ok) return content;
  const wait = Number(response.headers.get("Retry-After"));
  if (wait && !options.again) {
    await new Promise((resolve) => setTimeout(resolve, 1000 * Math.min(wait, 10)));
    return request(path, { ...options, again: true });
  }
  const error = new Error(sentence(content.error));
  error.final = response.status === 422 || response.status === 413;
  throw error;
};

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");

const form = (files, fields = {}) => {
  const body = new FormData();
  for (const [name, value] of Object.entries(fields)) body.append(name, value);
  for (const file of files) body.append("images", file, file.name || "picture.png");
  return { method: "POST", body };
};

const change = async (path, options) => {
  const token = $("#token").value.trim();
  if (settings.token === "true" && !token) {
    $("#token").focus();
    throw new Error("Changing the model needs the token: write it into the box.");
  }
  return request(path, { ...options, method: "POST", headers: token ? { Authorization: `Bearer ${token}` } : {} });
};

const ask = async (files) => (await request("../v1/predict", form(files))).images;

const gallery = new Gallery({ ask, most, onChoose: (item) => explain(item), onChange: () => afterAnswers() });

const picture = (content) => `data:image/png;base64,${content}`;
const tile = (source, title, below) => make("div", { class: "tile", title },
  source ? make("img", { src: source, alt: title }) : make("div", { class: "none" }, title), below);

// Why, and "no, it is …"

const explain = async (item) => {
  const number = ++asked;
  const box = $("#why");
  box.hidden = false;
  box.replaceChildren(make("p", { class: "muted" }, "Looking closer …"));
  const rate = gallery.rate === null ? "" : `&false_reject=${gallery.rate}`;
  try {
    const found = (await request(`../v1/explain?neighbours=4${rate}`, form([item.file]))).images[0];
    if (number === asked) showWhy(item, found);
  } catch (error) {
    if (number === asked) box.replaceChildren(make("p", { class: "message bad" }, error.message));
  }
};

const showWhy = (item, found) => {
  const known = gallery.isKnown(item);
  const name = make("input", { list: "known-names", maxlength: 100, autocomplete: "off", placeholder: "a name", "aria-label": "What it is" });
  const correct = make("form", { class: "naming", id: "correct" }, make("label", {}, known ? `No, it is not ${gallery.label(item)}; it is ` : "It is ", name), make("button", { class: "primary" }, "Teach"));
  correct.addEventListener("submit", (event) => { event.preventDefault(); teach(name.value, [item]); });
  const evidence = found.classes.map((c) => make("div", { class: "row" }, make("div", { class: "who" }, c.name),
    make("div", { class: "strip" }, ...c.neighbours.map((n) => tile(n.picture && picture(n.picture), n.source, "")))));
  $("#why").replaceChildren(
    make("p", { class: `verdict ${known ? "known" : "unknown"}` }, sentence(found.verdict)),
    correct,
    make("div", { class: "pair" },
      make("figure", {}, make("img", { src: item.url, alt: "the image" }), make("figcaption", {}, item.name)),
      make("figure", {}, make("img", { class: "heat", src: picture(found.heat_map), alt: "heat map" }), make("figcaption", {}, "where it looked"))),
    make("h2", {}, "The nearest images it knows"), make("div", { class: "evidence" }, ...evidence));
  if (matchMedia("(max-width: 720px)").matches) $("#why").scrollIntoView({ block: "start" });
};

// Unknown images in groups

const afterAnswers = async () => {
  await Promise.all([showGroups().catch((error) => say(error.message, true)), showDrift()]);
};

const showGroups = async () => {
  const unknown = gallery.unknown();
  const some = [];
  let bytes = 0;
  for (const item of unknown) {
    if (some.length >= most.images || (bytes += item.file.size) > most.bytes) break;
    some.push(item);
  }
  if (!some.length) {
    groups = [];
  } else {
    const found = await request("../v1/discover?min_size=3", form(some.map((item) => item.file)));
    const rest = [...found.left_over, ...found.accepted].sort((a, b) => a - b);
    groups = [...found.groups.map((one) => one.members), rest].filter((members) => members.length).map((members) => members.map((i) => some[i]));
    groups.alike = found.groups.length;
  }
  group = groups.length === 1 || groups.alike ? 0 : null;
  left = new Set();
  drawGroups();
};

const drawGroups = () => {
  $("#groups").hidden = !groups.length;
  $("#groups .groups").replaceChildren(...groups.map((members, number) => {
    const chosen = number === group;
    const tiles = members.map((item) => {
      const out = chosen && left.has(item);
      return make("button", {
        type: "button", class: "tile", "aria-pressed": chosen ? String(!out) : null, title: item.name,
        onclick: (event) => {
          if (number !== group) return; // the click chooses the group
          event.stopPropagation();
          if (!left.delete(item)) left.add(item);
          drawGroups();
        },
      }, make("img", { src: item.url, alt: item.name }));
    });
    const what = number < groups.alike ? `Group ${number + 1}` : "In no group";
    return make("div", { class: "group", "aria-current": String(chosen), onclick: () => { group = number; left = new Set(); drawGroups(); } },
      make("div", {}, make("b", {}, what), make("div", { class: "muted" }, count(members.length, "image", "images"))), make("div", { class: "strip" }, ...tiles));
  }));
  nameButton();
};

const nameButton = () => {
  const wanted = $("#name").value.trim();
  const images = group === null ? 0 : groups[group].length - left.size;
  const exists = classes.some((one) => one.name === wanted);
  $("#teach").textContent = exists ? `Add ${count(images, "image", "images")} to ${wanted}` : images ? `Teach ${count(images, "image", "images")}` : "Teach the model";
};

$("#name").addEventListener("input", nameButton);
$("#naming").addEventListener("submit", (event) => {
  event.preventDefault();
  if (group === null) return say("Choose a group of unknown images first.", true);
  teach($("#name").value, groups[group].filter((item) => !left.has(item)));
});

// Changes of the model

const teach = async (text, items) => {
  const name = text.trim();
  if (!name) return say("Say what it is: a class needs a name.", true);
  if (!items.length) return say("No image is left to teach: click some of the group again.", true);
  const exists = classes.some((one) => one.name === name);
  await changeModel(async () => {
    const found = await change("../v1/enroll", form(items.map((item) => item.file), { name, add: String(exists) }));
    $("#name").value = "";
    return `The model knows ${name} now, from ${count(found.images, "image", "images")}. ${found.note ? sentence(found.note) : ""}`;
  });
};

const forget = (name) => changeModel(async () => {
  const found = await change(`../v1/forget?name=${encodeURIComponent(name)}`, {});
  return `The model has forgotten ${name}. ${found.note ? sentence(found.note) : ""}`;
});

const undo = () => changeModel(async () => {
  const before = classes;
  const now = (await change("../v1/undo", {})).classes;
  const gone = before.filter((one) => !now.includes(one.name)).map((one) => one.name);
  const back = now.filter((name) => !before.some((one) => one.name === name));
  return `Undone. ${gone.length ? `${gone.join(", ")} is no longer known.` : back.length ? `${back.join(", ")} is known again.` : "The model is as it was before the last change."}`;
});

/** Change the model, then show what it says now about everything on the page. */
const changeModel = async (work) => {
  say("Working …");
  document.body.classList.add("busy");
  try {
    say(await work());
    await showClasses();
    await gallery.askAgain();
    gallery.note(state);
    if (gallery.chosen) await explain(gallery.chosen);
  } catch (error) {
    say(error.message, true);
  } finally {
    document.body.classList.remove("busy");
  }
};

$("#undo").addEventListener("click", undo);

const showClasses = async () => {
  const found = await request("../v1/classes");
  classes = found.classes;
  ownRate = found.false_reject;
  state = found.state;
  $("#about").textContent = `This model knows ${count(classes.length, "class", "classes")}. ` + (found.rejects
    ? "What is none of them it calls unknown, and it can be taught." : "It has too few images to tell what is unknown: it gives everything a name.");
  $("#undo").hidden = !found.can_undo;
  $("#known-names").replaceChildren(...classes.map((one) => make("option", { value: one.name })));
  $("#classes .classes").replaceChildren(...classes.map((one) => make("div", { class: `class${one.taught ? " taught" : ""}` },
    make("div", {}, make("b", {}, one.name), make("span", { class: "muted" }, ` ${count(one.images, "image", "images")}${one.taught ? ", taught" : ""} `),
      classes.length > 1 ? forgetButton(one.name) : ""),
    make("div", { class: "strip" }, ...one.pictures.map((content) => tile(picture(content), one.name, ""))))));
  gallery.showRate(ownRate);
  nameButton();
};

/** A button that asks once more before it forgets. */
const forgetButton = (name) => {
  const button = make("button", { type: "button", class: "link" }, "forget");
  button.addEventListener("click", () => {
    if (button.dataset.sure) return forget(name);
    button.dataset.sure = "yes";
    button.textContent = `really forget ${name}?`;
  });
  return button;
};

const showDrift = async () => {
  const box = $("#drift");
  try {
    const found = await request("../v1/drift");
    box.hidden = !found.images;
    box.className = found.alarm ? "message bad" : "muted";
    box.textContent = sentence(found.text);
  } catch {
    box.hidden = true;
  }
  $("#rate").hidden = !gallery.answered().some((item) => typeof item.answer.p_value === "number");
};

$("#token-row").addEventListener("submit", (event) => event.preventDefault());
$("#token-row").hidden = settings.token !== "true";
await showClasses().catch((error) => say(error.message, true));
document.body.dataset.ready = "true";
await gallery.restore(state);
