// Answers in the visitor's browser: the model is an ONNX file that decides by itself, run by onnxruntime-web.
import { Gallery, $, count, say } from "./gallery.js";
import { readPixels } from "./resize.js";

const AT_ONCE = 8;

const fetchOrSay = async (name) => {
  const response = await fetch(name);
  if (!response.ok) throw new Error(`The file ${name} is missing beside this page.`);
  return response;
};

const load = async () => {
  if (typeof WebAssembly !== "object") throw new Error("This browser has no WebAssembly, which this page computes its answers with; use a newer one.");
  const ort = await import("./ort.js");
  ort.env.wasm.wasmPaths = { wasm: new URL("ort.wasm", location.href).href };
  ort.env.wasm.numThreads = 1; // more need headers that plain file servers do not send
  const about = await (await fetchOrSay("model.json")).json();
  const session = await ort.InferenceSession.create(await (await fetchOrSay("model.onnx")).arrayBuffer());
  return { ort, about, session };
};

const answerAll = async ({ ort, about, session }, files) => {
  const { image_size: size, channels, class_names: names } = about;
  const read = await Promise.all(files.map((file) => readPixels(file, size, channels).catch(() => null)));
  const whole = read.filter(Boolean);
  const answers = [];
  if (whole.length) {
    const pixels = new Uint8Array(whole.length * size * size * channels);
    whole.forEach((one, i) => pixels.set(one, i * one.length));
    const out = await session.run({ pixels: new ort.Tensor("uint8", pixels, [whole.length, size, size, channels]) });
    for (let i = 0; i < whole.length; i++) {
      const p = out.p_value.data[i];
      answers.push({ known: Number(out.label.data[i]) >= 0, nearest: names[Number(out.nearest.data[i])], score: out.score.data[i], p_value: Number.isNaN(p) ? null : p });
    }
  }
  return read.map((one, i) => (one ? answers.shift() : { error: `${files[i].name} is no image that this browser can read` }));
};

try {
  const model = await load();
  const gallery = new Gallery({
    ask: (files) => answerAll(model, files),
    most: { images: AT_ONCE, bytes: Infinity },
    onChange: () => { $("#rate").hidden = !gallery.answered().some((item) => typeof item.answer.p_value === "number"); },
  });
  gallery.showRate(model.about.false_reject);
  const names = model.about.class_names;
  $("#about").textContent = `This model knows ${count(names.length, "class", "classes")}: ${names.slice(0, 12).join(", ")}${names.length > 12 ? ", …" : ""}.`;
  document.body.dataset.ready = "true";
  await gallery.restore(model.about.state);
} catch (error) {
  $("#about").textContent = "";
  $("#drop").hidden = true;
  $("#camera").hidden = true;
  say(error.message, true);
  document.body.dataset.ready = "failed";
}
