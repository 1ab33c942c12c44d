// The signed-in user: at a provider or with a token, the sign-out button, and the scopes.
import { by } from "./dom.js";
import * as feed from "./feed.js";

const FAILURES = {
  401: "unknown or expired token.",
  429: "too many wrong tokens from your address. Wait a minute and try again.",
};
const RETRY_MS = 60000; // at least, between two automatic sign-ins at the provider

/** @param {{begin: () => void, end: () => void}} on a user signed in; the user signed out. */
export function sessionView(on) {
  const form = by("sign-in");
  let leaving = Promise.resolve(); // the request that drops a cookie; it must not drop the cookie of the next sign-in
  let user = {
    needed: false,
    name: null,
    scopes: ["read", "write", "admin"],
    all_meshes: true,
    cookie: false,
    tokens: true,
    provider: null,
    from_provider: false,
  };

  /** Ask the service for the user. If it does not answer, nothing changes. */
  async function refresh() {
    user = await feed.user().catch(() => user);
    by("sign-out").hidden = !user.cookie;
    by("user").textContent = user.needed && user.name ? user.name : "";
    by("sign-in-with").hidden = !user.provider;
    by("sign-in-with").textContent = `Sign in with ${user.provider}`;
    by("sign-in-form").hidden = !user.tokens;
    if (form.open && user.provider && !by("token").value) by("sign-in-with").focus();
  }

  /** Sign in at the provider, and come back to what is shown now. */
  function goToProvider() {
    sessionStorage.setItem("asked", String(Date.now()));
    location.assign(`${feed.ROOT}login/oidc?return_to=${encodeURIComponent(location.hash)}`);
  }

  /** Show the form, and drop the cookie that the service refused. */
  function ask() {
    if (form.open) return;
    if (user.from_provider && Date.now() - Number(sessionStorage.getItem("asked")) > RETRY_MS) {
      goToProvider(); // the sign-in has expired; the provider may still know the user, so that no one has to type
      return;
    }
    by("sign-in-failed").textContent = "";
    by("sign-out").hidden = true;
    by("user").textContent = "";
    form.showModal();
    leaving = feed
      .signOut()
      .catch(() => {})
      .then(refresh);
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
    const elsewhere = await feed.signOut().catch(() => null);
    user.from_provider = false;
    if (elsewhere) location.assign(elsewhere.location);
    else on.end();
  }

  form.addEventListener("cancel", (event) => event.preventDefault()); // nothing can be shown without a token
  by("sign-in-form").addEventListener("submit", signIn);
  by("sign-in-with").addEventListener("click", goToProvider);
  by("sign-out").addEventListener("click", signOut);
  return {
    ask,
    refresh,
    isAsking: () => form.open,
    needsToken: () => user.needed,
    name: () => user.name ?? "",
    seesAllMeshes: () => user.all_meshes,
    canWrite: () => user.scopes.includes("write") || user.scopes.includes("admin"),
  };
}
