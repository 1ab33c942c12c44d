// The signed-in user: the form for a token, the sign-out button, and the scopes.
import { by } from "./dom.js";
import * as feed from "./feed.js";

const FAILURES = {
  401: "unknown or expired token.",
  429: "too many wrong tokens from your address. Wait a minute and try again.",
};

/** @param {{begin: () => void, end: () => void}} on a user signed in; the user signed out. */
export function sessionView(on) {
  const form = by("sign-in");
  let leaving = Promise.resolve(); // the request that drops a cookie; it must not drop the cookie of the next sign-in
  let user = { needed: false, name: null, scopes: ["read", "write", "admin"], all_meshes: true, cookie: false };

  /** Ask the service for the user. If it does not answer, nothing changes. */
  async function refresh() {
    user = await feed.user().catch(() => user);
    by("sign-out").hidden = !user.cookie;
    by("user").textContent = user.needed && user.name ? user.name : "";
  }

  /** Show the form, and drop the cookie that the service refused. */
  function ask() {
    if (form.open) return;
    by("sign-in-failed").textContent = "";
    by("sign-out").hidden = true;
    by("user").textContent = "";
    form.showModal();
    leaving = feed.signOut().catch(() => {});
  }

  async function signIn(event) {
    event.preventDefault();
    try {
      await leaving;
      await feed.signIn(by("token").value.trim());
    } catch (error) {
      by("sign-in-failed").textContent = `Sign in failed: ${FAILURES[error.status] ?? error.message}`;
      return;
    }
    by("token").value = "";
    form.close();
    await refresh();
    on.begin();
  }

  async function signOut() {
    await feed.signOut().catch(() => {});
    on.end();
  }

  form.addEventListener("cancel", (event) => event.preventDefault()); // nothing can be shown without a token
  by("sign-in-form").addEventListener("submit", signIn);
  by("sign-out").addEventListener("click", signOut);
  return {
    ask,
    refresh,
    isAsking: () => form.open,
    needsToken: () => user.needed,
    seesAllMeshes: () => user.all_meshes,
    canWrite: () => user.scopes.includes("write") || user.scopes.includes("admin"),
  };
}
