// Search runs in a Worker, which browsers do not start for pages opened from a folder (file:). There, and only
// there, a hidden frame takes its place: same script, same messages.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      const inside = frame.contentWindow
      const tell = (target, data) =>
        setTimeout(() => target.dispatchEvent(new MessageEvent("message", { data })))

      inside.postMessage = (data) => tell(this, data) // what the script says …
      const waiting = []
      this.postMessage = (data) => waiting.push(data) // … and hears, once it is there
      this.terminate = () => frame.remove()

      inside.importScripts = (...urls) =>
        urls.reduce((before, next) => before.then(() => load(inside, next)), Promise.resolve())
      load(inside, url).then(() => {
        this.postMessage = (data) => tell(inside, data)
        waiting.forEach(this.postMessage)
      })
    }
  }

  const load = (inside, url) =>
    new Promise((resolve) => {
      const script = inside.document.createElement("script")
      script.src = new URL(url, document.baseURI)
      script.onload = resolve
      inside.document.body.append(script)
    })
}
