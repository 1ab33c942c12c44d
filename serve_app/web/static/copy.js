// Copies a command.
const COPIED_MS = 2000;

/** Copy a command, or select it where a page may not write to the clipboard: over HTTP from another machine. */
export async function copy(command, code, button) {
  try {
    await navigator.clipboard.writeText(command);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), COPIED_MS);
  } catch {
    getSelection()?.selectAllChildren(code);
  }
}
