// Server-sent events, and whether they still come.

const SILENCE_MS = 3500;
const AGAIN_MS = 1000;

/**
 * Listens to `url` until `close` of what is returned is called. `told` gets each event's data, `state` gets
 * "open", "lost" or "unknown" (the server knows no such thing).
 */
export function listen(url, name, told, state) {
  let source = null;
  let quiet = 0;
  let again = 0;
  let closed = false;

  const lost = async () => {
    source?.close();
    if (closed) return;
    clearTimeout(quiet);
    clearTimeout(again);
    again = setTimeout(open, AGAIN_MS);
    // An event source does not tell why it has ended.
    const answer = await fetch(url, { method: "HEAD" }).catch(() => null);
    if (!closed) state(answer?.status === 404 ? "unknown" : "lost");
  };

  const alive = () => {
    clearTimeout(quiet);
    quiet = setTimeout(lost, SILENCE_MS);
  };

  function open() {
    if (closed) return;
    source = new EventSource(url);
    source.addEventListener(name, (event) => {
      alive();
      state("open");
      told(JSON.parse(event.data));
    });
    source.addEventListener("error", lost);
    alive();
  }

  open();
  return {
    close() {
      closed = true;
      clearTimeout(quiet);
      clearTimeout(again);
      source?.close();
    },
  };
}
