// Looks again every few seconds, while somebody looks at the page. Without it the page is the same, and read again by hand.
"use strict";

const EVERY = 5000;

function put(fresh, id) {
  const [now, then] = [document.getElementById(id), fresh.getElementById(id)];
  if (!now || !then || now.innerHTML === then.innerHTML) return;
  const link = now.contains(document.activeElement) && document.activeElement.getAttribute("href");
  now.replaceChildren(...then.childNodes);
  // Who goes by the keyboard stays where he was.
  if (link) [...now.querySelectorAll("a")].find((one) => one.getAttribute("href") === link)?.focus();
}

async function look() {
  if (document.hidden) return;
  let answered = false;
  try {
    const answer = await fetch(location.href, { signal: AbortSignal.timeout(EVERY) });
    // What is not there any more is an answer too.
    answered = answer.ok || answer.status === 404;
    if (answered && document.getSelection().isCollapsed) {
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      put(fresh, "live");
      put(fresh, "now");
    }
  } catch {
    // Told below.
  }
  document.getElementById("stale").hidden = answered;
}

async function keepLooking() {
  for (;;) {
    await new Promise((later) => setTimeout(later, EVERY));
    await look();
  }
}

keepLooking();
