// Server-sent events, and whether they still come.

const SILENCE_MS = 3500;
const AGAIN_MS = 1000;

/** What the server says when it does not send events, by HTTP status. */
const REFUSALS = { 404: "unknown", 503: "full" };

/**
 * Listens to `url` until `close` of what is returned is called. `told` gets each event's data. `state` gets "lost",
 * "unknown" (the server knows no such thing) or "full" (it has too many listeners), and for how many seconds
 * nothing was heard; it is told again every second.
 */
export function listen(url, name, told, state) {
  let source = null;
  let quiet = 0;
  let again = 0;
  let closed = false;
  let trouble = null;
  let heard = performance.now();

  const tell = () => {
    if (trouble && !closed) state(trouble, (performance.now() - heard) / 1000);
  };

  async function lost() {
    source?.close();
    clearTimeout(quiet);
    clearTimeout(again);
    if (closed) return;
    again = setTimeout(open, AGAIN_MS);
    // An event source does not tell why it has ended.
    const answer = await fetch(url, { method: "HEAD" }).catch(() => null);
    if (source?.readyState === EventSource.OPEN) return;
    trouble = REFUSALS[answer?.status] ?? "lost";
    tell();
  }

  const alive = () => {
    clearTimeout(quiet);
    quiet = setTimeout(lost, SILENCE_MS);
  };

  function open() {
    if (closed) return;
    source = new EventSource(url);
    source.addEventListener(name, (event) => {
      heard = performance.now();
      trouble = null;
      alive();
      told(JSON.parse(event.data));
    });
    source.addEventListener("error", lost);
    alive();
  }

  open();
  const ticking = setInterval(tell, 1000);
  return {
    close() {
      closed = true;
      clearTimeout(quiet);
      clearTimeout(again);
      clearInterval(ticking);
      source?.close();
    },
  };
}
