// Images to pixels as Pillow makes them: central square, bilinear with antialiasing, in the same fixed-point numbers.

const BITS = 22;

/** The weights of each output pixel along one axis: [first input pixel, integer weights]. */
const weigh = (from, to) => {
  const scale = from / to;
  const reach = Math.max(scale, 1);
  return Array.from({ length: to }, (_, i) => {
    const center = (i + 0.5) * scale;
    const first = Math.max(0, Math.trunc(center - reach + 0.5));
    const last = Math.min(from, Math.trunc(center + reach + 0.5));
    const weights = Array.from({ length: last - first }, (__, j) => Math.max(0, 1 - Math.abs((j + first - center + 0.5) / reach)));
    const sum = weights.reduce((a, b) => a + b, 0);
    return [first, weights.map((w) => Math.trunc(0.5 + (w / sum) * (1 << BITS)))];
  });
};

/** RGBA (side, side) to RGB (size, size): across, then down, rounded to bytes after each. */
export const resize = (rgba, side, size) => {
  const weights = weigh(side, size);
  const across = new Uint8Array(side * size * 3);
  for (let y = 0; y < side; y++) {
    for (let x = 0; x < size; x++) {
      const [first, w] = weights[x];
      for (let c = 0; c < 3; c++) {
        let sum = 1 << (BITS - 1);
        for (let j = 0; j < w.length; j++) sum += rgba[(y * side + first + j) * 4 + c] * w[j];
        across[(y * size + x) * 3 + c] = Math.min(255, sum >> BITS);
      }
    }
  }
  const out = new Uint8Array(size * size * 3);
  for (let y = 0; y < size; y++) {
    const [first, w] = weights[y];
    for (let i = 0; i < size * 3; i++) {
      let sum = 1 << (BITS - 1);
      for (let j = 0; j < w.length; j++) sum += across[(first + j) * size * 3 + i] * w[j];
      out[y * size * 3 + i] = Math.min(255, sum >> BITS);
    }
  }
  return out;
};

const toGrey = (rgb) => {
  const out = new Uint8Array(rgb.length / 3);
  for (let i = 0; i < out.length; i++) out[i] = (rgb[3 * i] * 19595 + rgb[3 * i + 1] * 38470 + rgb[3 * i + 2] * 7471 + 0x8000) >> 16;
  return out;
};

/** A file to (size, size, channels) bytes: turned as its camera says, on white, the central square of it. */
export const readPixels = async (file, size, channels) => {
  const image = await createImageBitmap(file, { imageOrientation: "from-image", colorSpaceConversion: "none" });
  const side = Math.min(image.width, image.height);
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = side;
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  pen.fillStyle = "white";
  pen.fillRect(0, 0, side, side);
  pen.drawImage(image, -Math.floor((image.width - side) / 2), -Math.floor((image.height - side) / 2));
  image.close();
  const rgb = resize(pen.getImageData(0, 0, side, side).data, side, size);
  return channels === 1 ? toGrey(rgb) : rgb;
};
