// Asks one question at a time: a new one cancels the one before, and of questions in quick succession only the last is sent.

const SETTLED_MS = 150; // without another question

/**
 * @param {() => void} redraw called when an answer has arrived, or has failed.
 * @returns `ask(key, load)` gives the state of a question: `{key, answer, failed, isLoading}`. answer: while it is loading, that of
 * the question before. `retry()` asks again.
 */
export function latest(redraw) {
  let now = { key: "", answer: null, failed: "", isLoading: false },
    controller = new AbortController(),
    timer = 0;

  function ask(/** @type {string} */ key, /** @type {(signal: AbortSignal) => Promise<any>} */ load) {
    if (key === now.key) return now;
    clearTimeout(timer);
    controller.abort();
    controller = new AbortController();
    const mine = { key, answer: now.answer, failed: "", isLoading: true },
      { signal } = controller;
    now = mine;
    timer = setTimeout(
      async () => {
        try {
          mine.answer = await load(signal);
        } catch (error) {
          mine.answer = null;
          mine.failed = error.message;
        }
        if (mine !== now) return;
        mine.isLoading = false;
        redraw();
      },
      mine.answer ? SETTLED_MS : 0,
    );
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
