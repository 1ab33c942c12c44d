// Asks one question at a time: a new one cancels the one before, and of questions in quick succession only the last is sent.

const SETTLED_MS = 150; // without another question

/**
 * @param {() => void} redraw called when an answer has arrived, or has failed.
 * @returns `ask(key, load)` gives the state of a question: `{key, answer, failed, isLoading}`. answer: while it is loading, the answer to
 * the question before. `retry()` asks again.
 */
export function latest(redraw) {
  let now = { key: "", answer: null, failed: "", isLoading: false },
    controller = new AbortController(),
    timer = 0,
    asked = 0; // when the last question came, ms

  function ask(/** @type {string} */ key, /** @type {(signal: AbortSignal) => Promise<any>} */ load) {
    if (key === now.key) return now;
    clearTimeout(timer);
    controller.abort();
    controller = new AbortController();
    const mine = { key, answer: now.answer, failed: "", isLoading: true },
      pause = Date.now() - asked < SETTLED_MS ? SETTLED_MS : 0,
      { signal } = controller;
    now = mine;
    asked = Date.now();
    timer = setTimeout(async () => {
      try {
        mine.answer = await load(signal);
      } catch (error) {
        mine.answer = null;
        mine.failed = error.message;
      }
      if (mine !== now) return;
      mine.isLoading = false;
      redraw();
    }, pause);
    return mine;
  }

  return {
    ask,
    /** Forget the answer, and what is under way. */
    forget() {
      clearTimeout(timer);
      controller.abort();
      now = { key: "", answer: null, failed: "", isLoading: false };
    },
    retry() {
      now = { ...now, key: "" };
      redraw();
    },
  };
}
